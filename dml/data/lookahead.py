"""Minibatches of an iterator by their number, in a window that moves forward."""

import sys
from collections import deque
from collections.abc import Iterable

import numpy as np


class Lookahead:
    """The minibatches of an iterator that are not dropped yet.

    Args:
      batches: Indices of each minibatch.

    Attributes:
      stop: Number of the first minibatch that is not available yet.
    """

    def __init__(self, batches: Iterable[np.ndarray]):
        self.source = iter(batches)
        self.stop = sys.maxsize
        self.first = 0  # number of the first minibatch in `held`
        self.held: deque[np.ndarray] = deque()

    def available(self, first: int, count: int) -> int:
        """Return how many of `count` minibatches from `first` on are available."""
        count = max(0, min(count, self.stop - first))
        while self.first + len(self.held) < first + count:
            batch = next(self.source, None)
            if batch is None:
                break
            self.held.append(batch)
        return max(0, min(count, self.first + len(self.held) - first))

    def take(self, first: int, count: int) -> list[np.ndarray]:
        """Return `count` minibatches; those before number `first` are dropped."""
        self.available(first, count)
        while self.first < first:
            self.held.popleft()
            self.first += 1
        return [self.held[i] for i in range(count)]
