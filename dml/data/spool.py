"""BATCH: more elements than memory holds, one after another; on disk what is too many.

|--- spilled, on disk ---|--- used, in memory ---|--- room ---|
"""

from bisect import bisect_left
from pathlib import Path
from typing import Any

import numpy as np

from dml.data.scratch import Scratch


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
        """Take the first elements of the room in; return them."""
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
