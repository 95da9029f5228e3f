"""Lists of keys that a server knows, so that they need not be sent again (Li 2014).

Both ends number them alike: messages between two ranks never overtake each other.
"""

import numpy as np


class Lists:
    """Owns the key lists that a server knows: the last few, by their number."""

    def __init__(self, most: int):
        self.most, self.count = most, 0
        self.numbers: dict[bytes, int] = {}

    def number(self, keys: np.ndarray) -> tuple[int, bool]:
        """Return a list's number, and whether the server knows it."""
        if not self.most:
            return 0, False
        text = keys.tobytes()
        number = self.numbers.get(text)
        if number is not None:
            return number, True
        number = self.count % self.most
        if self.count >= self.most:
            del self.numbers[next(iter(self.numbers))]
        self.numbers[text] = number
        self.count += 1
        return number, False
