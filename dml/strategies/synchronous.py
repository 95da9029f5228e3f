"""Synchronous data parallel: every rank has all parameters and a shard of each batch.

       global minibatch
    ┌─────────┼─────────┐
  shard 0   shard 1   shard 2
  gradient  gradient  gradient    each a mean, times its share of the examples
    └──── all-reduce ───┘
  update    update    update      equal parameters and equal gradients: equal replicas

Dense gradients are summed in buckets (`bucket_sums`), rows of a table sparse or dense
(`row_sums`); the words are given there.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.parameters import Update
from dml.types import CountedComm, Problem, Reducer, Step


def synchronous(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    reducer: Reducer,
    accumulate: int = 1,
    ahead: int = 0,
    state: Any = None,
    **own: Any,
) -> Iterator[Step]:
    """Train on all ranks in lockstep; yield a Step after every update.

    problem: what is learned, equal on all ranks.
    batches: the indices of each global minibatch, equal on all ranks.
    update: an optax optimizer, or a rule of rows.
    comm: the ranks.
    timer: measures the phases.
    reducer: how gradients become their mean, such as exact(ring_allreduce).
    accumulate: microbatches of a rank's shard.
    ahead: minibatches made in the background.
    state: the update's state in an earlier Step.

    Of a tree also:

    bucket_mb: size of a bucket; 0 sends all gradients at once, after the backward pass.
        It changes no bit.
    noise: whether the gradient noise scale is measured, by one more word.
    memory: the leaves of an earlier Step's memory on this rank.

    Of rows also:

    dense: (buffer, nbytes) -> whether to reduce the whole table, not gather nbytes.
    columns: the columns of a gradient's rows that are sent.
    every: updates in a Step.
    """
    return trainer(update)(
        problem,
        batches,
        update,
        comm=comm,
        timer=timer,
        reducer=reducer,
        accumulate=accumulate,
        ahead=ahead,
        state=state,
        **own,
    )


def trainer(update: Update) -> Callable[..., Iterator[Step]]:
    """Return what trains by the update; rows need no JAX."""
    if hasattr(update, "init"):
        from dml.strategies.bucket_sums import by_buckets

        return by_buckets
    from dml.strategies.row_sums import by_rows

    return by_rows
