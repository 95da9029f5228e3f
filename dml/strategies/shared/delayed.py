"""HOGWILD! simulated on one core: reads are delayed by random numbers of updates.

    update              t-3   t-2   t-1   t           With a delay of 2, update t reads
    row r after it      w₁    w₂    w₃    w₃ + Δ(w₁)  w₁, the value before t - 2, and
                                                      changes the current value w₃.

Runs of lock-free strategies are not reproducible. These runs are, and their delays are
known, so that the error can be measured by delay, learning rate and sparsity. Without
delays the result is bit-identical to serial descent. There is no communication.
"""

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from dml.metrics.timer import Timer
from dml.sim.delays import DelayDistribution, stream
from dml.strategies.shared.workers import Descent, epoch_settings, settle
from dml.types import Comm, Problem, Step
from dml.types.ranges import Seed, Size, checked
from dml.wire.memory.delayed import delayed_loop, delayed_table
from dml.wire.memory.state import Order

MAX_DELAY = 1024  # in updates


@checked
def delayed(
    problem: Problem,
    batches: Iterable[Order],
    update: Descent,
    *,
    comm: Comm,
    timer: Timer,
    distribution: DelayDistribution,
    seed: Seed = 0,
    per_coordinate: bool = False,
    max_delay: Size = MAX_DELAY,
) -> Iterator[Step]:
    """Train as one worker with delayed reads; yield a Step per epoch.

    A delay is a random number of updates, rounded down, and at most the number of
    updates so far.

    Args:
      problem: Problem to train; it needs a kernel with a model.
      batches: Order of each epoch.
      update: Learning rates and momentum.
      comm: Communicator of one rank.
      timer: Measures the phases.
      distribution: Delay distribution, in updates.
      seed: Random seed of the delays.
      per_coordinate: Whether each row that an update reads has its own delay; if not,
        all rows that an update reads have the same delay.
      max_delay: Largest delay, in updates.
    """
    kernel = problem.kernel
    edges, momentum = kernel.data.edges, bool(update.momentum)
    state = delayed_table(problem.params.copy(), edges, max_delay, momentum)
    descend = delayed_loop(kernel.model)
    rows_per_edge = np.diff(edges.starts)
    updates = 0  # number of updates so far
    for epoch, order in enumerate(timer.waits("input", batches), 1):
        with timer("input"):
            data, settings = epoch_settings(problem, update, epoch)
            visited = visited_edges(order)
            reads = rows_per_edge[visited]  # number of reads of each update
            generator = stream(seed, epoch)
            delays = draw_delays(distribution, generator, reads, per_coordinate)
            updates_before = updates + np.repeat(np.arange(order.steps), reads)
            longest = np.minimum(updates_before, max_delay)
            delays = np.minimum(delays, longest).astype(np.int64)
        with timer("update"):
            total = descend(state, data, visited, delays, updates, settings)
            settle(kernel, data, order.steps, state.table, state.velocity, state.before)
        updates += order.steps
        yield Step(
            number=updates,
            loss=total / order.steps,
            params=partial(np.copy, state.table),
            examples=order.steps,
            seconds=timer.lap(),
            words_sent=0,
            measures={
                "delay_mean": float(delays.mean()),
                "delay_max": float(delays.max()),
            },
            epoch=epoch,
        )


def visited_edges(order: Order) -> np.ndarray:
    """Return the edges of an epoch in the order of their visits."""
    edges = (order.visits[:, None] * order.batch + np.arange(order.batch)).ravel()
    # the last block may be short
    return edges[edges < order.steps].astype(np.int64)


def draw_delays(
    distribution: DelayDistribution,
    generator: np.random.Generator,
    reads: np.ndarray,
    per_coordinate: bool,
) -> np.ndarray:
    """Draw the delay of each read.

    Args:
      distribution: Delay distribution, in updates.
      generator: Random generator.
      reads: Number of rows that each update reads.
      per_coordinate: Whether each row that an update reads has its own delay.
    """
    if per_coordinate:
        return distribution.draws(generator, int(reads.sum()))
    return np.repeat(distribution.draws(generator, len(reads)), reads)
