"""K-FAC (Martens 2015) on a grid of ranks (KAISA, Pauloski 2021).

    gradients   a b c d │ a b c d │ a b c d │ a b c d    summed on all ranks
    curvature   a       │   b     │     c   │       d    summed on the owner of a layer
    inverses    a b     │ a b     │     c d │     c d    gathered in rows of the grid
    new         a b     │ a b     │     c d │     c d    gradients times inverses
    gradients   a b c d │ a b c d │ a b c d │ a b c d    gathered in columns
    update      all     │ all     │ all     │ all        optax

With a fraction f of the ranks as gradient workers, a rank stores the inverses of f of
the layers, and receives the preconditioned gradients of the others. Every fraction has
equal bits.

Elements sent per update, over p ranks: those of an all-reduce of n parameters and one
loss; (1 - f)p·n_d for n_d parameters of dense layers; each `curvature_every` updates
(p-1)T for the T elements of all triangles; each `inverses_every` updates (fp-1)T.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from functools import partial
from itertools import chain
from typing import Any

import jax
import numpy as np

from dml.data.feed import feed
from dml.metrics.timer import Timer
from dml.models.factors import by_path
from dml.strategies.kfac.plan import make_plan, term_curvatures
from dml.strategies.kfac.state import CurvatureState, pack_pairs
from dml.strategies.loops.bucket_sums import (
    allocate_buckets,
    collect,
    join_buckets,
    own_terms,
    update_once,
)
from dml.strategies.loops.parameters import Tree, check_shards, restore_memory
from dml.strategies.loops.term_gradients import ALL
from dml.types import BadInput, CountedComm, Grads, Problem, Reducer, Step
from dml.types.ranges import Count, PositiveFraction, Size, checked
from dml.update.curvature import DEFAULT, CurvatureRule
from dml.update.dense import Optimizer
from dml.wire.comm.buffers import TreeLayout
from dml.wire.comm.once import once_per_call
from dml.wire.reducers.buckets import fill


@checked
def kfac(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Optimizer,
    *,
    comm: CountedComm,
    timer: Timer,
    reducer: Reducer,
    fraction: PositiveFraction = 1.0,
    rule: CurvatureRule = DEFAULT,
    accumulate: Count = 1,
    shards: Size = 0,
    prefetch: Size = 0,
    state: Any = None,
    memory: Any = None,
) -> Iterator[Step]:
    """Train on all ranks in lockstep; yield a Step after every update.

    Dense layers are those whose gradients are products (`models.factors`). Other
    parameters, such as tables, scales and filters, keep their gradients.

    Args:
      problem: Problem to train, equal on all ranks, with a model.
      batches: Indices of each global minibatch, equal on all ranks.
      update: optax optimizer of the preconditioned gradients.
      comm: Ranks.
      timer: Measures the phases.
      reducer: Computes the mean of gradients and of curvatures; one with reduce_parts,
        such as exact.
      fraction: Fraction of the ranks that are gradient workers of a layer, from 1/p to
        1; it must divide the ranks into equal rows.
      rule: Settings of K-FAC.
      accumulate: Number of microbatches of a shard.
      shards: Number of logical shards, each a term of the sums; 0: one per rank.
      prefetch: Number of minibatches prepared in the background.
      state: `state` of the Step to resume from; None initializes it.
      memory: Leaves of `memory` in an earlier Step, of each rank of that run.
    """
    if reducer.reduce_parts is None:
        raise BadInput(
            "expected a reducer that sums parts of a buffer, got one that needs all of "
            "it; pass --reduce=exact or --reduce=order_free"
        )
    batches = iter(batches)
    first = next(batches, None)
    if first is None:
        return
    plan = once_per_call(
        comm, "plan", partial(make_plan, problem, first, comm.size, fraction)
    )
    saved = state or {"optimizer": None, "curvature": None}
    start = partial(Tree, problem, update, saved["optimizer"])
    parameters = copy(once_per_call(comm, "start", start))
    curvature = CurvatureState(comm, plan.layers, plan.grid, rule, saved["curvature"])
    (bucket,) = sums = allocate_buckets(comm, problem, False, 0, scalars=1)
    length = plan.grid.length
    flat = TreeLayout(None, ((length,),), (np.dtype(np.float32),), length)
    memories = [reducer.init(bucket.layout), reducer.init(flat)]
    memories = restore_memory(comm, memories, memory)
    shards = check_shards(comm, shards, reducer.reduce_terms is not None)
    terms, reduce = own_terms(comm, reducer, shards, sums)
    triangles = [np.empty(length, np.float32) for _ in terms]
    buffer_bytes = sum(term.nbytes for term in triangles)
    split, plain, with_curvature = term_curvatures(
        comm, problem, plan, shards, accumulate
    )
    minibatches = feed(
        problem.take, chain([first], batches), split, parameters.put, prefetch
    )
    paths = list(by_path(problem.params))
    for number, (count, parts) in enumerate(timer.waits("input", minibatches), 1):
        sent = comm.bytes_sent
        is_due = curvature.is_due(rule.curvature_every)
        compute = with_curvature if is_due else plain
        for term in timer.waits("gradient", compute(parameters.params, parts, count)):
            with timer("gradient"):
                comm.platform.work(term.share * comm.size)
                (own,) = terms[term.number]
                grads = collect(own, term.done)
                if is_due:
                    grads, pairs = grads[ALL] if grads else (None, None)
                    grads = grads and {ALL: grads}
                    pack_pairs(pairs, triangles[term.number], term.factor)
                fill(own, grads, term.factor)
                own.buffer[own.layout.length :] = term.factor * float(term.loss)
        with timer("wire"):
            buffers = [own.buffer for (own,) in terms]
            memories[0] = reduce(comm, buffers, memories[0])
            if is_due:
                memories[1] = reducer.reduce_parts(
                    comm, triangles, plan.grid.parts, memories[1]
                )
        with timer("update"):
            if is_due:
                curvature.average(triangles[0])
            if curvature.is_due(rule.inverses_every):
                curvature.invert()
            mean, _ = join_buckets(sums, False)
            grads = dict(zip(paths, jax.tree.leaves(mean), strict=True))
            vector = curvature.precondition(grads)
            update_once(
                comm,
                parameters,
                [bucket.buffer, vector],
                partial(preconditioned, curvature, grads, vector, mean),
            )
        yield Step(
            number=number,
            loss=float(bucket.buffer[-1]),
            params=parameters.collect,
            examples=count,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // bucket.buffer.itemsize,
            measures={"curvature_bytes": curvature.nbytes + buffer_bytes},
            state=partial(full_state, comm, parameters, curvature),
            memory=partial(list, memories),
            replicas=True,
        )


def preconditioned(
    curvature: CurvatureState, grads: Mapping[str, Any], vector: np.ndarray, like: Any
) -> Grads:
    """Return the gradients, with those of dense layers preconditioned and limited.

    Args:
      curvature: The curvature of this rank.
      grads: Mean gradients by path.
      vector: Preconditioned gradients of all dense layers.
      like: Tree with the structure of the gradients.
    """
    new = curvature.leaves(vector * curvature.scale(vector, grads), grads)
    return jax.tree.unflatten(
        jax.tree.structure(like), [new.get(path, leaf) for path, leaf in grads.items()]
    )


def full_state(
    comm: CountedComm, parameters: Tree, curvature: CurvatureState
) -> dict[str, Any]:
    """Return the state of the optimizer and of all layers; collective."""
    return {"optimizer": parameters.state(), "curvature": curvature.collect(comm)}
