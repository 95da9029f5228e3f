"""Arrays on disk with random access.

Several processes may open a Scratch file; writes are unbuffered. A Spool is an array
that grows; its last elements are in memory:

    |--- spilled, on disk ---|--- used, in memory ---|--- free ---|
"""

import os
import tempfile
from bisect import bisect_left
from pathlib import Path
from typing import Any

import numpy as np

from dml.types import BadInput


class Scratch:
    """A file of elements of one dtype; `nameless` files are deleted when closed."""

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
                "pass a writable folder with free space"
            ) from None

    def put(self, position: int, array: np.ndarray) -> None:
        """Write an array, starting at element `position`."""
        remaining = memoryview(array.view(np.uint8))  # type: ignore[arg-type]
        at = position * self.dtype.itemsize
        stop = at + len(remaining)
        try:
            while remaining:  # one call writes at most 2 GiB
                written = os.pwrite(self.file, remaining, at)
                remaining, at = remaining[written:], at + written
        except OSError as error:
            raise BadInput(
                f"{self.path}: expected space for at least {stop} bytes, got "
                f"{error.strerror} after {at}; free disk space or pass another folder "
                "(earlier results are kept)"
            ) from None

    def get(self, position: int, length: int) -> np.ndarray:
        """Read `length` elements, starting at element `position`."""
        array = np.empty(length, self.dtype)
        remaining = memoryview(array.view(np.uint8))  # type: ignore[arg-type]
        at = position * self.dtype.itemsize
        while remaining:
            read = os.preadv(self.file, [remaining], at)
            if not read:
                raise BadInput(
                    f"{self.path}: expected {len(remaining)} bytes at {at}, got the "
                    "end of the file; pass a folder shared by all ranks"
                )
            remaining, at = remaining[read:], at + read
        return array

    def close(self) -> None:
        os.close(self.file)

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Spool:
    """A growing array: the last `capacity` elements in memory, the others on disk."""

    def __init__(self, path: Path, dtype: Any, capacity: int):
        self.file = Scratch(path, dtype, nameless=True)
        self.memory = np.empty(capacity, dtype)  # unused pages take no memory
        self.spilled = self.used = 0

    def __len__(self) -> int:
        return self.spilled + self.used

    def reserve(self, least: int) -> np.ndarray:
        """Return free memory for at least `least` elements; spill the used memory."""
        if len(self.memory) - self.used < least:
            self.file.put(self.spilled, self.memory[: self.used])
            self.spilled, self.used = len(self), 0
        return self.memory[self.used :]

    def commit(self, length: int) -> np.ndarray:
        """Append the first `length` elements of the reserved memory; return them."""
        self.used += length
        return self.memory[self.used - length : self.used]

    def get(self, position: int, length: int) -> np.ndarray:
        """Return elements, starting at `position`; a view if all are in memory."""
        start = position - self.spilled
        if start >= 0:
            return self.memory[start : start + length]
        first = self.file.get(position, min(length, -start))
        rest = self.memory[: max(0, start + length)]
        return np.concatenate([first, rest]) if len(rest) else first

    def search(self, field: str, value: int, bounds: tuple[int, int]) -> int:
        """Return the first position in a range with element[field] >= value.

        The field must ascend in the range.
        """

        def key(position: int) -> int:
            return self.get(position, 1)[field][0]

        return bounds[0] + bisect_left(range(*bounds), value, key=key)

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
