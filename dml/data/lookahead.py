"""Random access to the minibatches of an iterator, in a window that moves forward."""

import sys
from collections import deque
from collections.abc import Iterable

import numpy as np


class Lookahead:
    """A window of the minibatches of an iterator.

    Args:
      batches: Indices of each minibatch.

    Attributes:
      stop: Number of the first minibatch that is not available yet.
    """

    def __init__(self, batches: Iterable[np.ndarray]):
        self.source = iter(batches)
        self.stop = sys.maxsize
        self.first = 0  # number of the first minibatch in `window`
        self.window: deque[np.ndarray] = deque()

    def available(self, first: int, count: int) -> int:
        """Return the number of available minibatches of `count` from `first` on."""
        count = max(0, min(count, self.stop - first))
        while self.first + len(self.window) < first + count:
            batch = next(self.source, None)
            if batch is None:
                break
            self.window.append(batch)
        return max(0, min(count, self.first + len(self.window) - first))

    def take(self, first: int, count: int) -> list[np.ndarray]:
        """Return `count` minibatches from `first` on, and drop earlier ones."""
        self.available(first, count)
        while self.first < first:
            self.window.popleft()
            self.first += 1
        return [self.window[i] for i in range(count)]
