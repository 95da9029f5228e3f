"""BATCH: arrays on disk, of which any part is written and read by place.

Several processes may have one file open; parts go to the disk at once, unbuffered. A
Spool has its last elements in memory:

    |--- spilled, on disk ---|--- used, in memory ---|--- room ---|
"""

import os
import tempfile
from bisect import bisect_left
from pathlib import Path
from typing import Any

import numpy as np

from dml.types import BadInput


class Scratch:
    """A file of one dtype; owns its descriptor. Without a name it ends when closed."""

    def __init__(self, path: Path, dtype: Any, nameless: bool = False):
        self.path, self.dtype = path, np.dtype(dtype)
        try:
            if nameless:
                with tempfile.TemporaryFile(dir=path.parent, buffering=0) as file:
                    self.file = os.dup(file.fileno())
            else:
                self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise BadInput(
                f"{path}: expected a file that can be written, got {error.strerror}; "
                "pass a folder with room and the right to write"
            ) from None

    def put(self, place: int, array: np.ndarray) -> None:
        """Write array from element `place` on."""
        left = memoryview(array.view(np.uint8))  # type: ignore[arg-type]
        at = place * self.dtype.itemsize
        stop = at + len(left)
        try:
            while left:  # a call writes 2 GiB at most, or what there is room for
                wrote = os.pwrite(self.file, left, at)
                left, at = left[wrote:], at + wrote
        except OSError as error:
            raise BadInput(
                f"{self.path}: expected room for {stop} bytes or more, got "
                f"{error.strerror} after {at}; free some, or pass another folder "
                "(earlier results are kept)"
            ) from None

    def get(self, place: int, length: int) -> np.ndarray:
        """Read `length` elements from element `place` on."""
        array = np.empty(length, self.dtype)
        left = memoryview(array.view(np.uint8))  # type: ignore[arg-type]
        at = place * self.dtype.itemsize
        while left:
            read = os.preadv(self.file, [left], at)
            if not read:
                raise BadInput(
                    f"{self.path}: expected {len(left)} bytes more at {at}, got the "
                    "end of the file; pass a folder that all ranks see"
                )
            left, at = left[read:], at + read
        return array

    def close(self) -> None:
        os.close(self.file)

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Spool:
    """Owns memory for `capacity` elements and a nameless file for all before them."""

    def __init__(self, path: Path, dtype: Any, capacity: int):
        self.file = Scratch(path, dtype, nameless=True)
        self.memory = np.empty(capacity, dtype)  # what is not used takes no memory
        self.spilled = self.used = 0

    def __len__(self) -> int:
        return self.spilled + self.used

    def room(self, least: int) -> np.ndarray:
        """Return the memory that is free, `least` elements or more, to be filled."""
        if len(self.memory) - self.used < least:
            self.file.put(self.spilled, self.memory[: self.used])
            self.spilled, self.used = len(self), 0
        return self.memory[self.used :]

    def keep(self, length: int) -> np.ndarray:
        """Add the first elements of the room; return them."""
        self.used += length
        return self.memory[self.used - length : self.used]

    def get(self, place: int, length: int) -> np.ndarray:
        """Return elements from `place` on; a view of those in memory."""
        start = place - self.spilled
        if start >= 0:
            return self.memory[start : start + length]
        first = self.file.get(place, min(length, -start))
        rest = self.memory[: max(0, start + length)]
        return np.concatenate([first, rest]) if len(rest) else first

    def search(self, field: str, value: int, span: tuple[int, int]) -> int:
        """Find the first element of span whose field, sorted there, reaches value."""

        def key(place: int) -> int:
            return self.get(place, 1)[field][0]

        return span[0] + bisect_left(range(*span), value, key=key)

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
