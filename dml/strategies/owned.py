"""Synchronous training in which each rank updates the leaves that it owns.

    gradients   a b c d │ a b c d │ a b c d     each rank, of its shard
    sums        a       │   b c   │       d     of a leaf on its owner only
    update      a       │   b c   │       d     with the state of the owned leaves
    new leaves  a b c d │ a b c d │ a b c d     sent by the owners to all ranks

A leaf is updated as a whole, so that updates which multiply matrices, such as Muon's,
are divided over ranks without further messages. The state of the optimizer is stored
once: 1/p of it by each rank, as in ZeRO-1, whose slices cut matrices.

Elements sent per update, over p ranks: 2(p-1)(n+1) for n parameters and one loss, as by
a ring all-reduce; `wire.plans.owners.words` has those of each rank. With a clip also
the sum of squares of each leaf.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dml.data.feed import feed
from dml.metrics.timer import Timer
from dml.strategies.bucket_sums import allocate_buckets, collect, own_terms
from dml.strategies.parameters import check_shards, restore_memory
from dml.strategies.term_gradients import term_gradients
from dml.types import (
    BadInput,
    CountedComm,
    Grads,
    Params,
    Problem,
    Reducer,
    Step,
    identity,
)
from dml.update import norms
from dml.update.dense import Optimizer, apply, statistics
from dml.wire.collectives.all_gather_parts import all_gather_parts
from dml.wire.comm.buffers import layout, pack, unpack
from dml.wire.comm.once import once_per_call
from dml.wire.plans.owners import Owners, Shape, owners
from dml.wire.reducers.buckets import fill


def owned(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Optimizer,
    *,
    comm: CountedComm,
    timer: Timer,
    reducer: Reducer,
    cost: Callable[[Shape], float] = math.prod,
    clip: float = 0.0,
    accumulate: int = 1,
    shards: int = 0,
    prefetch: int = 0,
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
      cost: Shape of a leaf -> cost of its update, by which owners are balanced.
      clip: Largest norm of the gradients; 0 does not clip.
      accumulate: Number of microbatches of a shard.
      shards: Number of logical shards, each a term of the sums; 0: one per rank.
      prefetch: Number of minibatches prepared in the background.
      state: State of the optimizer in an earlier Step; None starts anew.
      memory: Leaves of `memory` in an earlier Step, of each rank of that run.
    """
    if reducer.reduce_parts is None:
        raise BadInput(
            "expected a reducer that sums parts of a buffer, got one that needs all of "
            "it; pass --reduce=exact or --reduce=order_free"
        )
    (bucket,) = allocate_buckets(comm, problem, False, 0, scalars=1)
    length = bucket.layout.length
    plan = owners(bucket.layout.shapes, comm.size, cost, scalars=1)
    part = plan.parts[comm.rank]
    (memories,) = restore_memory(comm, [reducer.init(bucket.layout)], memory)
    shards = check_shards(comm, shards, reducer.reduce_terms is not None)
    terms, _ = own_terms(comm, reducer, shards, [bucket])
    split, compute = term_gradients(comm, problem, shards, accumulate, False)
    leaves = OwnedLeaves(problem.params, update, plan, comm, state)
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
            leaves.update(params, new, clip)
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
            state=leaves.collect,
            memory=partial(list, [memories]),
            replicas=True,
        )


class OwnedLeaves:
    """The leaves of one rank, and their state of the optimizer.

    Args:
      params: All parameters.
      update: optax optimizer.
      plan: Owners of the leaves.
      comm: Ranks.
      state: State of the optimizer for all leaves; None starts anew.
    """

    def __init__(
        self,
        params: Params,
        update: Optimizer,
        plan: Owners,
        comm: CountedComm,
        state: Any,
    ) -> None:
        self.optimizer, self.plan, self.comm = update, plan, comm
        self.like = jax.eval_shape(identity, params)
        self.own = plan.leaves[comm.rank]
        self.layout = layout(masked(self.like, self.own))
        start = update.init(one_element(params, self.own))
        if state is not None:
            saved = self.own_state(state)
            start = jax.tree_util.tree_map_with_path(
                lambda path, leaf: saved.get(jax.tree_util.keystr(path), leaf), start
            )
        self.state = self.put(start)

    def put(self, tree: Any) -> Any:
        return jax.device_put(tree, jax.local_devices()[0])

    def join(self, vector: np.ndarray, packed: Any) -> Params:
        """Return all parameters, packed in a vector that is not written again."""
        # the structure of a bucket is {"": params}
        (params,) = unpack(vector, packed, copy=False).values()
        return self.put(params)

    @property
    def state_bytes(self) -> int:
        """Bytes of this rank's state of the optimizer."""
        return sum(leaf.nbytes for leaf in self.own_state(self.state).values())

    def update(self, params: Params, values: np.ndarray, clip: float) -> None:
        """Replace the mean gradients of the leaves by their new values; collective.

        Args:
          params: All parameters.
          values: Gradients, then scalars.
          clip: Largest norm of all gradients; 0 does not clip.
        """
        own = values[: self.layout.length]
        gradients = iter(jax.tree.leaves(unpack(own, self.layout)))
        grads = self.put(one_element(self.like, self.own, lambda _: next(gradients)))
        if clip:
            limits = self.put((self.norm(grads), np.float32(clip)))
            grads = scale_down(grads, *limits)
        if len(self.own):
            before = self.put(one_element(params, self.own))
            new, self.state = apply(self.optimizer, grads, self.state, before)
            pack(jax.device_get(masked(new, self.own)), own)

    def norm(self, grads: Grads) -> np.float32:
        """Return the norm of the gradients of all ranks; collective."""
        squares = jax.tree.leaves(jax.device_get(weight_squares(grads)))
        own = np.array([squares[n] for n in self.own], np.float32)
        counts = np.array([len(leaves) for leaves in self.plan.leaves])
        gathered = all_gather_parts(self.comm, own, counts)
        # order matters: that of `norms.norm`, on any number of ranks
        return np.sqrt(sum(gathered, np.float32(0)))

    def paths(self, rank: int) -> list[str]:
        """Return the paths of the state of a rank's leaves, and of common values."""
        own = masked(self.like, self.plan.leaves[rank])
        return list(by_path(jax.eval_shape(self.optimizer.init, own)))

    def own_state(self, state: Any) -> dict[str, Any]:
        """Return the parts of a state that belong to this rank's leaves, by path."""
        values = by_path(state)
        return {path: values[path] for path in self.paths(self.comm.rank)}

    def collect(self) -> Any:
        """Return the state for all leaves; collective.

        The common values, such as the number of updates, are those of rank 0.
        """
        size = self.comm.size
        holders: dict[str, int] = {}
        for rank in reversed(range(size)):
            if len(self.plan.leaves[rank]):
                holders |= dict.fromkeys(self.paths(rank), rank)
        full = jax.eval_shape(self.optimizer.init, self.like)
        lengths = np.zeros(size, np.int64)
        for path, shape in by_path(full).items():
            lengths[holders[path]] += math.prod(shape.shape) * shape.dtype.itemsize
        own = [
            np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)
            for path, leaf in by_path(jax.device_get(self.state)).items()
            if holders[path] == self.comm.rank
        ]
        part = np.concatenate([np.empty(0, np.uint8), *own])
        gathered = all_gather_parts(self.comm, part, lengths)
        starts = np.cumsum([0, *lengths])[:-1]

        def leaf(path: Any, shape: Any) -> np.ndarray:
            rank = holders[jax.tree_util.keystr(path)]
            nbytes = math.prod(shape.shape) * shape.dtype.itemsize
            values = gathered[starts[rank] : starts[rank] + nbytes]
            starts[rank] += nbytes
            return values.copy().view(shape.dtype).reshape(shape.shape)

        return jax.tree_util.tree_map_with_path(leaf, full)


def masked(tree: Any, own: Sequence[int]) -> Any:
    """Return the tree with optax.MaskedNode in place of leaves that are not owned."""
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(
        structure,
        [leaf if n in own else optax.MaskedNode() for n, leaf in enumerate(leaves)],
    )


def one_element(
    tree: Any, own: Sequence[int], value: Callable[[Any], Any] = identity
) -> Any:
    """Return the tree with one element in place of each leaf that is not owned.

    If a program updates a single leaf, XLA fuses factors of all leaves, such as a bias
    correction, into its update, which changes bits. So the program of every rank has
    all leaves.

    Args:
      tree: Arrays or their shapes.
      own: Indices of the owned leaves.
      value: Owned leaf -> leaf of the result; called in the order of the leaves.
    """
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(
        structure,
        [
            value(leaf) if n in own else np.ones((1,) * leaf.ndim, leaf.dtype)
            for n, leaf in enumerate(leaves)
        ],
    )


def by_path(tree: Any) -> dict[str, Any]:
    """Return the leaves of a tree by their paths, in order."""
    return {
        jax.tree_util.keystr(path): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


@jax.jit
def weight_squares(grads: Grads) -> Any:
    """Return the sum of squares of each leaf; 0 for running statistics."""
    return jax.tree.map(jnp.multiply, norms.squares(grads), statistics(grads, False))


@jax.jit
def scale_down(grads: Grads, length: jax.Array, limit: jax.Array) -> Grads:
    """Return the gradients, clipped; running statistics are not clipped."""
    return jax.tree.map(
        lambda leaf, is_weight: (
            norms.clip_leaf(leaf, length, limit) if is_weight else leaf
        ),
        grads,
        statistics(grads, False),
    )
