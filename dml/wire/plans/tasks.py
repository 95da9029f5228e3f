"""Assignment of tasks, which are parts of shards, to workers of unequal speed.

shard 0  ├─task─┼─task─┼─task─┤        A free worker receives the next minibatches of
shard 1  ├─task─┼─task─┤               the shard with the least progress, so that all
shard 2  ├─task─┼─task─┼─task─┤        minibatches of all shards are used once.

Pure arithmetic, without communication.
"""

from collections.abc import Callable
from typing import NamedTuple


class ShardTask(NamedTuple):
    """Consecutive minibatches of one shard.

    Attributes:
      shard: Number of the shard.
      first: Number of the first minibatch.
      length: Number of minibatches; 0: no task is left.
    """

    shard: int
    first: int
    length: int


class Tasks:
    """Assignment of tasks until all shards have the same progress.

    Args:
      shards: Number of shards, equal to the number of workers.
      first: Number of the first minibatch.
      available: Function (first, count) -> number of available minibatches from `first`
        on, at most `count`.
    """

    def __init__(self, shards: int, first: int, available: Callable[[int, int], int]):
        self.progress, self.available = [first] * shards, available

    def assign(self, worker: int, count: int) -> ShardTask:
        """Return the next task of a worker, from the shard with the least progress.

        Of several such shards, the shard with the number of the worker is preferred.

        Args:
          worker: Number of the worker.
          count: Largest number of minibatches.
        """
        least = min(self.progress)
        shard = worker if self.progress[worker] == least else self.progress.index(least)
        task = ShardTask(shard, least, self.available(least, count))
        self.progress[shard] += task.length
        return task
