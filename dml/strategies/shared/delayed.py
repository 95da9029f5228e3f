"""HOGWILD! simulated on one core: reads are delayed by random numbers of updates.

    update        t-3   t-2   t-1   t          with a delay of 2, update t reads row r
    row r after   w₁    w₂    w₃    reads w₁   as it was 2 updates earlier, and changes
                                               its newest value, w₃

Runs of lock-free strategies are not reproducible. These runs are, and their delays are
known, so that the error can be measured by delay, step and sparsity. Without delays the
method is serial descent, bit for bit. There is no communication.
"""

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from dml.metrics.timer import Timer
from dml.sim.delays import DelayDistribution, stream
from dml.strategies.shared.workers import Descent, epoch_settings, settle
from dml.types import Comm, Problem, Step
from dml.wire.memory.delayed import delayed_loop, delayed_table
from dml.wire.memory.state import Order

MAX_DELAY = 1024  # updates that are saved; the greatest delay


def delayed(
    problem: Problem,
    batches: Iterable[Order],
    update: Descent,
    *,
    comm: Comm,
    timer: Timer,
    distribution: DelayDistribution,
    seed: int = 0,
    per_coordinate: bool = False,
    most: int = MAX_DELAY,
) -> Iterator[Step]:
    """Train as one worker with delayed reads; yield a Step per epoch.

    A delay is a random number, rounded down, and at most the number of updates so far.

    Args:
      problem: Problem to train; it needs a kernel with a model.
      batches: Order of each epoch.
      update: Learning rates and momentum.
      comm: Communicator of one rank.
      timer: Measures the phases.
      distribution: Delay distribution, in updates.
      seed: Random seed of the delays.
      per_coordinate: Whether each row that is read has a delay, or each update.
      most: Greatest delay.
    """
    kernel = problem.kernel
    edges, momentum = kernel.data.edges, bool(update.momentum)
    state = delayed_table(problem.params.copy(), edges, most, momentum)
    run, lengths = delayed_loop(kernel.model), np.diff(edges.starts)
    done = 0
    for epoch, order in enumerate(timer.waits("input", batches), 1):
        with timer("input"):
            data, settings = epoch_settings(problem, update, epoch)
            visited = in_turn(order)
            draws = stream(seed, epoch)
            late = delays(distribution, draws, lengths[visited], per_coordinate)
            past = done + np.repeat(np.arange(order.steps), lengths[visited])
            late = np.minimum(late, np.minimum(past, most)).astype(np.int64)
        with timer("update"):
            total = run(state, data, visited, late, done, settings)
            settle(kernel, data, order.steps, state.table, state.velocity, state.before)
        done += order.steps
        yield Step(
            number=done,
            loss=total / order.steps,
            params=partial(np.copy, state.table),
            examples=order.steps,
            seconds=timer.lap(),
            words_sent=0,
            measures={
                "delay_mean": float(late.mean()),
                "delay_max": float(late.max()),
            },
            epoch=epoch,
        )


def in_turn(order: Order) -> np.ndarray:
    """Return the edges of the blocks in order; the last block may be short."""
    edges = (order.visits[:, None] * order.batch + np.arange(order.batch)).ravel()
    return edges[edges < order.steps].astype(np.int64)


def delays(
    distribution: DelayDistribution,
    draws: np.random.Generator,
    lengths: np.ndarray,
    per_coordinate: bool,
) -> np.ndarray:
    """Draw the delay of each read.

    Args:
      distribution: Delay distribution, in updates.
      draws: Random generator.
      lengths: Number of rows that each update reads.
      per_coordinate: Whether each row has a delay, or each update.
    """
    if per_coordinate:
        return distribution.draws(draws, int(lengths.sum()))
    return np.repeat(distribution.draws(draws, len(lengths)), lengths)
