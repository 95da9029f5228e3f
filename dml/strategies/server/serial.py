"""One rank that accumulates what workers would push, in their order: the reference.

minibatch ─► shards of w workers ─► gradients, summed in worker order ─► update
"""

from collections.abc import Iterable, Iterator

import numpy as np

from dml.data.shards import shard
from dml.metrics.timer import Timer
from dml.types import Problem, Shard, Step
from dml.wire.rows import summed


def serial(
    problem: Problem,
    batches: Iterable[np.ndarray],
    table: Shard,
    timer: Timer,
    *,
    workers: int = 1,
) -> Iterator[Step]:
    """Train on one rank; a server's bsp gives the same bits."""
    for number, index in enumerate(batches, 1):
        pushes, losses = [], []
        with timer("gradient"):
            for worker in range(workers):
                mine = shard(index, worker, workers)
                if len(mine):
                    rows = problem.touched(mine)
                    loss, grads = problem.gradient(table.values, mine, rows)
                    weight = len(mine) / len(index)
                    pushes.append((rows, grads * np.float32(weight)))
                    losses.append(loss * weight)
        with timer("update"):
            table.update(*summed(pushes))
        yield Step(
            number, sum(losses), table.values, len(index), timer.lap(), words_sent=0
        )
