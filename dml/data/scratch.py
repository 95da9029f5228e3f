"""BATCH: arrays on disk, of which any part is written and read by place.

Several processes may have one file open; parts go to the disk at once, unbuffered.
"""

import os
import tempfile
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
