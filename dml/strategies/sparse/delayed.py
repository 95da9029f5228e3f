"""HOGWILD! simulated on one core: reads are late by a law, writes are not.

No run of a lock-free strategy repeats another; this one does, and its delays are known:
so error can be swept against delay, step and sparsity. No delay: serial, bit for bit.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np

from dml.metrics.timer import Timer
from dml.sim.laws import Law, stream
from dml.types import Step
from dml.wire.memory.delayed import Pace, kernel, twin
from dml.wire.memory.stamps import stamp

MOST = 1024  # updates that are remembered: no delay is longer


def delayed(
    model: Any,  # a module: types.SparseModel
    data: Any,
    table: np.ndarray,
    order: Callable[[int], np.ndarray],
    rates: Callable[[int], float],
    timer: Timer,
    *,
    law: Law,
    batch: int = 1,
    seed: int = 0,
    per_coordinate: bool = False,
    momentum: float = 0.0,
    most: int = MOST,
) -> Iterator[Step]:
    """Train from a table; epoch 1, 2, … visits blocks of batch edges by order(epoch).

    A delay is a draw of the law, rounded down: one an update, or one for each row that
    it reads. None reaches before the first update, nor further than most.
    """
    mine = twin(table.copy(), data.edges, most, bool(momentum))
    run = kernel(model, stamp(model))
    lengths, kind = np.diff(data.edges.starts), table.dtype.type
    examples = len(lengths)
    for epoch in count(1):
        done = (epoch - 1) * examples
        with timer("input"):
            rate = rates(epoch)
            paced = model.paced(data, rate)
            edges = visited(order(epoch), batch, examples)
            draws = stream(seed, epoch)
            late = delays(law, draws, lengths[edges], per_coordinate)
            past = done + np.repeat(np.arange(examples), lengths[edges])
            late = np.minimum(late, np.minimum(past, most)).astype(np.int64)
        with timer("update", work=1):
            pace = Pace(kind(rate), kind(momentum))
            total = run(mine, paced, edges, late, done, pace)
            for rows in (mine.table, mine.velocity, mine.before):
                model.settle(rows, paced, examples)
        yield Step(
            *(epoch, total / examples, mine.table.copy(), examples, timer.lap(), 0),
            measures={
                "delay_mean": float(late.mean()),
                "delay_max": float(late.max()),
            },
        )


def visited(blocks: np.ndarray, batch: int, examples: int) -> np.ndarray:
    """Return the edges of the blocks in turn; the last block may be short."""
    edges = (blocks[:, None] * batch + np.arange(batch)).ravel()
    return edges[edges < examples].astype(np.int64)


def delays(
    law: Law, draws: np.random.Generator, lengths: np.ndarray, per_coordinate: bool
) -> np.ndarray:
    """Draw how late each row is read, of updates that read so many rows each."""
    if per_coordinate:
        return law.draws(draws, int(lengths.sum()))
    return np.repeat(law.draws(draws, len(lengths)), lengths)
