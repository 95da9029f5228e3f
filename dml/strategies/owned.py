"""Synchronous training in which each rank updates the leaves that it owns.

    gradients   a b c d │ a b c d │ a b c d     each rank, of its shard
    sums        a       │   b c   │       d     of a leaf on its owner only
    update      a       │   b c   │       d     with the state of the owned leaves
    new leaves  a b c d │ a b c d │ a b c d     sent by the owners to all ranks

One rank updates all elements of a leaf, so that updates which multiply matrices, such
as Muon's, need no further messages. The state of the optimizer is stored once, about
1/p of it by each rank, as in ZeRO-1, which divides matrices into slices.

Elements sent per update, over p ranks: 2(p-1)(n+1) for n parameters and one loss, as by
a ring all-reduce; `wire.plans.owners.words` has those of each rank. With a clip,
(p-1)·leaves more: the sum of squares of each leaf.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from dml.data.feed import feed
from dml.metrics.timer import Timer
from dml.strategies.loops.bucket_sums import allocate_buckets, collect, own_terms
from dml.strategies.loops.parameters import check_shards, restore_memory
from dml.strategies.loops.term_gradients import term_gradients
from dml.strategies.owned_leaves import OwnedLeaves
from dml.types import (
    BadInput,
    CountedComm,
    Params,
    Problem,
    Reducer,
    Step,
    identity,
)
from dml.types.ranges import Count, Number, Size, checked
from dml.update.dense import Optimizer
from dml.wire.collectives.all_gather_parts import all_gather_parts
from dml.wire.comm.once import once_per_call
from dml.wire.plans.owners import owners
from dml.wire.reducers.buckets import fill


@checked
def owned(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Optimizer,
    *,
    comm: CountedComm,
    timer: Timer,
    reducer: Reducer,
    costs: Callable[[Params], Sequence[float]] | None = None,
    clip: Number = 0.0,
    accumulate: Count = 1,
    shards: Size = 0,
    prefetch: Size = 0,
    state: Any = None,
    memory: Any = None,
) -> Iterator[Step]:
    """Train on all ranks in lockstep; yield a Step after every update.

    With equal bits of the mean gradient the parameters have equal bits on any number of
    ranks, and those of the same optimizer on one process.

    Args:
      problem: Problem to train.
      batches: Indices of each global minibatch, equal on all ranks.
      update: optax optimizer that updates each leaf by itself and does not clip, as no
        rank has all gradients; see `clip`.
      comm: Ranks.
      timer: Measures the phases.
      reducer: Computes the mean of gradients; one with reduce_parts, such as exact.
      costs: Params -> costs of the updates of their leaves, by which owners are
        balanced; None: numbers of elements.
      clip: Largest norm of the gradients; 0 does not clip.
      accumulate: Number of microbatches of a shard.
      shards: Number of logical shards, each a term of the sums; 0: one per rank.
      prefetch: Number of minibatches prepared in the background.
      state: State of the optimizer from the Step to resume from; None initializes it.
      memory: Leaves of `memory` in an earlier Step, of each rank of that run.
    """
    if reducer.reduce_parts is None:
        raise BadInput(
            "expected a reducer that sums parts of a buffer, got one that needs all of "
            "it; pass --reduce=exact or --reduce=order_free"
        )
    (bucket,) = allocate_buckets(comm, problem, False, 0, scalars=1)
    length = bucket.layout.length
    by_leaf = None if costs is None else costs(problem.params)
    plan = owners(bucket.layout.shapes, comm.size, by_leaf, scalars=1)
    part = plan.parts[comm.rank]
    (memories,) = restore_memory(comm, [reducer.init(bucket.layout)], memory)
    shards = check_shards(comm, shards, reducer.reduce_terms is not None)
    terms, _ = own_terms(comm, reducer, shards, [bucket])
    split, compute = term_gradients(comm, problem, shards, accumulate, False)
    leaves = OwnedLeaves(problem.params, update, plan, comm.rank, state)
    params = leaves.put(problem.params)
    minibatches = feed(problem.take, batches, split, leaves.put, prefetch)
    for number, (count, parts) in enumerate(timer.waits("input", minibatches), 1):
        sent = comm.bytes_sent
        for term in timer.waits("gradient", compute(params, parts, count)):
            with timer("gradient"):
                comm.platform.work(term.share * comm.size)
                (own,) = terms[term.number]
                fill(own, collect(own, term.done), term.factor)
                own.buffer[length:] = term.factor * float(term.loss)
        buffers = [own.buffer for (own,) in terms]
        with timer("wire"):
            memories = reducer.reduce_parts(comm, buffers, plan.parts, memories)
        with timer("update"):
            new = bucket.buffer[part].copy()  # the last part ends with the loss
            leaves.update(comm, params, new, clip)
        with timer("wire"):
            new = all_gather_parts(comm, new, np.array(plan.lengths))
        with timer("update"):
            params = once_per_call(
                comm, "owned", partial(leaves.join, new[:length], bucket.layout)
            )
        yield Step(
            number=number,
            loss=float(new[length]),
            params=partial(identity, params),
            examples=count,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // new.itemsize,
            measures={"state_bytes": leaves.state_bytes},
            state=partial(leaves.collect, comm),
            memory=partial(list, [memories]),
            replicas=True,
        )
