"""HOGWILD! simulated on one core: reads are late by a law, writes are not.

No run of a lock-free strategy repeats another; this one does, and its delays are known:
so error can be swept against delay, step and sparsity. No delay: serial, bit for bit.
"""

from collections.abc import Iterator
from itertools import count

import numpy as np

from dml.metrics.timer import Timer
from dml.sim.laws import Law, stream
from dml.strategies.sparse.workers import Settings, Sparse, paced, visits
from dml.types import Step
from dml.wire.memory.delayed import kernel, twin

MOST = 1024  # updates that are remembered: no delay is longer


def delayed(
    problem: Sparse,
    settings: Settings,
    timer: Timer,
    *,
    law: Law,
    per_coordinate: bool = False,
    most: int = MOST,
) -> Iterator[Step]:
    """Train as one worker does, but for its reads.

    A delay is a draw of the law, rounded down: one an update, or one for each row that
    it reads. None reaches before the first update, nor further than most.
    """
    model, edges = problem.model, problem.data.edges
    mine = twin(problem.start.copy(), edges, most, bool(settings.momentum))
    run, lengths = kernel(model), np.diff(edges.starts)
    examples = len(lengths)
    for epoch in count(1):
        done = (epoch - 1) * examples
        with timer("input"):
            data, pace = paced(problem, settings, epoch)
            order = visits(settings, epoch, examples)
            visited = in_turn(order.visits, settings.batch, examples)
            draws = stream(settings.seed, epoch)
            late = delays(law, draws, lengths[visited], per_coordinate)
            past = done + np.repeat(np.arange(examples), lengths[visited])
            late = np.minimum(late, np.minimum(past, most)).astype(np.int64)
        with timer("update"):
            total = run(mine, data, visited, late, done, pace)
            for rows in (mine.table, mine.velocity, mine.before):
                model.settle(rows, data, examples)
        yield Step(
            *(epoch, total / examples, mine.table.copy(), examples, timer.lap(), 0),
            measures={
                "delay_mean": float(late.mean()),
                "delay_max": float(late.max()),
            },
        )


def in_turn(blocks: np.ndarray, batch: int, examples: int) -> np.ndarray:
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
