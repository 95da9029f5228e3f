"""Synchronous data parallel: every rank has all parameters and a shard of each batch.

       global minibatch
    ┌─────────┼─────────┐
  shard 0   shard 1   shard 2
  gradient  gradient  gradient    weighted by the examples of the shard
    └──── all-reduce ───┘
  update    update    update

The replicas stay identical, because all ranks apply equal gradients to equal
parameters. Dense gradients are summed in buckets (`bucket_sums`), rows of a table by a
sparse or a dense exchange (`row_sums`); these modules state the rounds and the number
of elements sent per update.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.loops.parameters import Update
from dml.types import BadInput, CountedComm, Problem, Reducer, Step, no_op
from dml.types.ranges import Count, Number, Size, checked


@checked
def synchronous(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    reducer: Reducer,
    accumulate: Count = 1,
    shards: Size = 0,
    prefetch: Size = 0,
    commit: Callable[[], object] = no_op,
    state: Any = None,
    memory: Any = None,
    bucket_mb: Number = 0.0,
    noise: bool = False,
    **rows: Any,
) -> Iterator[Step]:
    """Train on all ranks in lockstep; yield a Step after every update.

    Args:
      problem: Problem to train, equal on all ranks.
      batches: Indices of each global minibatch, equal on all ranks.
      update: optax optimizer if the parameters are a tree; rule that updates rows if
        they are one table.
      comm: Ranks.
      timer: Measures the phases.
      reducer: Computes the mean of gradients, such as exact(ring_allreduce).
      accumulate: Number of microbatches into which a shard is divided; their gradients
        are accumulated.
      shards: Number of logical shards of a minibatch, whose gradients are reduced as
        separate terms; 0: one per rank. With an order-free reducer the training is
        bit-identical on any number of ranks.
      prefetch: Number of minibatches prepared in the background.
      commit: Called after the last exchange of an update and before the update. If it
        raises, the parameters and the state are those of the last Step.
      state: State of the optimizer from the Step to resume from; None initializes it.
      memory: Leaves of `memory` in an earlier Step, of each rank of that run.
      bucket_mb: Size of a bucket of the gradients of a tree in MiB; 0 sends all at
        once, after the backward pass.
      noise: Whether the noise scale of the gradients of a tree is measured.
      **rows: Options of `row_sums.train_table` for a table.
    """
    loop: Callable[..., Iterator[Step]]
    if hasattr(update, "init"):  # an optax optimizer
        from dml.strategies.loops.bucket_sums import train_tree

        loop = train_tree
        rows |= {"bucket_mb": bucket_mb, "noise": noise}
    else:  # needs no JAX
        from dml.strategies.loops.row_sums import train_table

        loop = train_table
        if bucket_mb or noise:
            raise BadInput(
                f"expected an optax optimizer with bucket_mb={bucket_mb} and "
                f"noise={noise}, got a rule of rows; leave them out"
            )
    return loop(
        problem,
        batches,
        update,
        comm=comm,
        timer=timer,
        reducer=reducer,
        accumulate=accumulate,
        shards=shards,
        prefetch=prefetch,
        commit=commit,
        state=state,
        memory=memory,
        **rows,
    )
