"""The leaves that a rank owns, their optimizer state, and their update.

    state   count │ a      │   b c   │       d      common values, such as count, are
    rank    all   │ 0      │   1     │       2      stored by every rank

The program of a rank has all leaves; leaves of other ranks have one element, see
`one_element`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dml.types import CountedComm, Grads, Params, identity
from dml.update import norms
from dml.update.dense import Optimizer, apply, statistics
from dml.update.paths import leaves_by_path, replace_leaves
from dml.wire.collectives.all_gather_parts import all_gather_parts
from dml.wire.comm.buffers import layout, pack, unpack
from dml.wire.plans.owners import Owners


class OwnedLeaves:
    """The leaves of one rank, and their optimizer state.

    Args:
      params: All parameters.
      update: optax optimizer.
      plan: Owners of the leaves.
      rank: This rank.
      state: State of the optimizer for all leaves; None initializes it.
    """

    def __init__(
        self,
        params: Params,
        update: Optimizer,
        plan: Owners,
        rank: int,
        state: Any,
    ) -> None:
        self.optimizer, self.plan, self.rank = update, plan, rank
        self.like = jax.eval_shape(identity, params)
        self.own = plan.leaves[rank]
        self.layout = layout(masked(self.like, self.own))
        start = update.init(one_element(params, self.own))
        if state is not None:
            start = replace_leaves(start, self.own_state(state))
        self.state = self.put(start)
        # bytes of this rank's state of the optimizer
        self.state_bytes = sum(leaf.nbytes for leaf in self.own_state(start).values())

    def put(self, tree: Any) -> Any:
        return jax.device_put(tree, jax.local_devices()[0])

    def join(self, vector: np.ndarray, packed: Any) -> Params:
        """Return all parameters, packed in a vector that is not written again."""
        # the structure of a bucket is {"": params}
        (params,) = unpack(vector, packed, copy=False).values()
        return self.put(params)

    def update(
        self, comm: CountedComm, params: Params, values: np.ndarray, clip: float
    ) -> None:
        """Replace the mean gradients of the leaves by their new values; collective.

        Args:
          comm: Ranks.
          params: All parameters.
          values: Gradients, then scalars.
          clip: Largest norm of all gradients; 0 does not clip.
        """
        own = values[: self.layout.length]
        gradients = iter(jax.tree.leaves(unpack(own, self.layout)))
        grads = self.put(one_element(self.like, self.own, lambda _: next(gradients)))
        if clip:
            limits = self.put((self.norm(comm, grads), np.float32(clip)))
            grads = scale_down(grads, *limits)
        if len(self.own):
            before = self.put(one_element(params, self.own))
            new, self.state = apply(self.optimizer, grads, self.state, before)
            pack(jax.device_get(masked(new, self.own)), own)

    def norm(self, comm: CountedComm, grads: Grads) -> np.float32:
        """Return the norm of the gradients of all ranks; collective."""
        squares = jax.tree.leaves(jax.device_get(weight_squares(grads)))
        own = np.array([squares[n] for n in self.own], np.float32)
        counts = np.array([len(leaves) for leaves in self.plan.leaves])
        gathered = all_gather_parts(comm, own, counts)
        # order matters: that of `norms.norm`, on any number of ranks
        return np.sqrt(sum(gathered, np.float32(0)))

    def paths(self, rank: int) -> list[str]:
        """Return the paths of the state of a rank's leaves, and of common values."""
        own = masked(self.like, self.plan.leaves[rank])
        return list(leaves_by_path(jax.eval_shape(self.optimizer.init, own)))

    def own_state(self, state: Any) -> dict[str, Any]:
        """Return the parts of a state that belong to this rank's leaves, by path."""
        values = leaves_by_path(state)
        return {path: values[path] for path in self.paths(self.rank)}

    def collect(self, comm: CountedComm) -> Any:
        """Return the state for all leaves; collective.

        The common values, such as the number of updates, are those of rank 0.
        """
        size = comm.size
        holders: dict[str, int] = {}
        for rank in reversed(range(size)):
            if len(self.plan.leaves[rank]):
                holders |= dict.fromkeys(self.paths(rank), rank)
        full = jax.eval_shape(self.optimizer.init, self.like)
        lengths = np.zeros(size, np.int64)
        for path, shape in leaves_by_path(full).items():
            lengths[holders[path]] += math.prod(shape.shape) * shape.dtype.itemsize
        own = [
            np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)
            for path, leaf in leaves_by_path(jax.device_get(self.state)).items()
            if holders[path] == self.rank
        ]
        part = np.concatenate([np.empty(0, np.uint8), *own])
        gathered = all_gather_parts(comm, part, lengths)
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

    If a program updates a single leaf, XLA fuses the factors that leaves share, such as
    a bias correction, into its update, which changes bits. So the program of every rank
    has all leaves.

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
