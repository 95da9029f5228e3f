"""Temporary arrays on disk.

A Scratch is an array in a file with random access and unbuffered writes, which several
processes may open. A Spool is an array that grows; its last elements are in memory:

    |--- spilled, on disk ---|--- used, in memory ---|--- free memory ---|
"""

import os
import tempfile
from bisect import bisect_left
from pathlib import Path
from typing import Any

import numpy as np

from dml.types import BadInput


class Scratch:
    """An array of one dtype in a file.

    Args:
      path: Path of the file; it is created if it is missing.
      dtype: Type of the elements.
      unnamed: Whether to use a file without a name in the folder of `path`, which is
        deleted when it is closed.
    """

    def __init__(self, path: Path, dtype: Any, unnamed: bool = False):
        self.path, self.dtype = path, np.dtype(dtype)
        try:
            if unnamed:
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
        remaining = array.view(np.uint8).data
        offset = position * self.dtype.itemsize  # bytes
        stop = offset + len(remaining)
        try:
            while remaining:  # one call writes at most 2 GiB
                written = os.pwrite(self.file, remaining, offset)
                remaining = remaining[written:]
                offset += written
        except OSError as error:
            raise BadInput(
                f"{self.path}: expected space for at least {stop} bytes, got "
                f"{error.strerror} after {offset} bytes; free disk space or pass "
                "another folder (earlier results are kept)"
            ) from None

    def get(self, position: int, length: int) -> np.ndarray:
        """Read `length` elements, starting at element `position`."""
        array = np.empty(length, self.dtype)
        remaining = array.view(np.uint8).data
        offset = position * self.dtype.itemsize  # bytes
        while remaining:
            read = os.preadv(self.file, [remaining], offset)
            if not read:
                raise BadInput(
                    f"{self.path}: expected {len(remaining)} bytes at byte {offset}, "
                    "got the end of the file; pass a folder shared by all ranks"
                )
            remaining = remaining[read:]
            offset += read
        return array

    def close(self) -> None:
        os.close(self.file)

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Spool:
    """A growing array with up to `capacity` elements in memory, the others on disk."""

    def __init__(self, path: Path, dtype: Any, capacity: int):
        self.file = Scratch(path, dtype, unnamed=True)
        self.memory = np.empty(capacity, dtype)  # the OS allocates pages at first use
        self.spilled = self.used = 0

    def __len__(self) -> int:
        return self.spilled + self.used

    def reserve(self, min_length: int) -> np.ndarray:
        """Return free memory for min_length elements or more; spill if necessary.

        Write new elements to the returned array, then call `commit`.
        """
        if len(self.memory) - self.used < min_length:
            self.file.put(self.spilled, self.memory[: self.used])
            self.spilled, self.used = len(self), 0
        return self.memory[self.used :]

    def commit(self, length: int) -> np.ndarray:
        """Append the first `length` elements of the reserved memory; return them."""
        self.used += length
        return self.memory[self.used - length : self.used]

    def get(self, position: int, length: int) -> np.ndarray:
        """Return `length` elements from `position`; a view if all are in memory."""
        start = position - self.spilled
        if start >= 0:
            return self.memory[start : start + length]
        on_disk = self.file.get(position, min(length, -start))
        in_memory = self.memory[: max(0, start + length)]
        return np.concatenate([on_disk, in_memory]) if len(in_memory) else on_disk

    def search(self, field: str, value: int, bounds: tuple[int, int]) -> int:
        """Return the first position in a range with element[field] >= value.

        Args:
          field: Field of the dtype, ascending in the range.
          value: Value to search for.
          bounds: Start and stop of the range; the stop is returned if there is none.
        """

        def key(position: int) -> int:
            return self.get(position, 1)[field][0]

        return bounds[0] + bisect_left(range(*bounds), value, key=key)

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
