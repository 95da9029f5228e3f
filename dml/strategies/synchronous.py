"""Synchronous data parallel: every rank has all parameters and a shard of each batch.

       global minibatch
    ┌─────────┼─────────┐
  shard 0   shard 1   shard 2
  gradient  gradient  gradient    mean over the shard × its share of the examples
    └──── all-reduce ───┘
  update    update    update      equal parameters and equal gradients: equal replicas

Dense gradients are summed in buckets (`bucket_sums`), and rows of a table by a sparse
or a dense exchange (`row_sums`). Rounds and words per update are those of the
all-reduce; both modules state the words.
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

    Args:
      problem: Problem to train, equal on all ranks.
      batches: Indices of each global minibatch, equal on all ranks.
      update: optax optimizer for a tree, or rule of rows for a table.
      comm: Ranks.
      timer: Measures the phases.
      reducer: Computes the mean of gradients, such as exact(ring_allreduce).
      accumulate: Number of microbatches of a rank's shard.
      ahead: Number of minibatches prepared in the background.
      state: State of the update in an earlier Step; None starts anew.
      **own: Options of `bucket_sums.by_buckets` for a tree, of `row_sums.by_rows` for a
        table.
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
    """Return the training loop for a tree or for rows; that for rows needs no JAX."""
    if hasattr(update, "init"):
        from dml.strategies.bucket_sums import by_buckets

        return by_buckets
    from dml.strategies.row_sums import by_rows

    return by_rows
