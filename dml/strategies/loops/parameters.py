"""Parameters in training: a tree on a device, or one table of rows.

Both classes have the same methods, so that a strategy is written once:

put: Move a batch to where `mean_gradient` reads it.
mean_gradient: (parts of a minibatch, its number of examples) -> the sum of loss and
  gradient of the parts, each weighted by its share of the examples.
apply: Change the parameters by a gradient.
averaged, assign: Return the values that replicas average; replace them by their mean.
collect, state: Calls for a Step.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np

from dml.data.feed import FeedPart
from dml.data.shards import logical_microbatches, shard
from dml.types import (
    BadInput,
    Comm,
    Memory,
    Params,
    Problem,
    Rows,
    Shard,
    TermMemory,
    identity,
)
from dml.wire.reducers.rows import sum_rows

Update = Any  # an optax GradientTransformation, or a function rows -> Shard


def row_rule(update: Update) -> Any:
    """Return the update rule of rows; an optimizer becomes a rule of all values."""
    if not hasattr(update, "init"):
        return update
    from dml.update.flat import flat

    return partial(flat, update)


def make_parameters(
    problem: Problem, update: Update, state: Any = None
) -> "Tree | TableParameters":
    """Return the problem's parameters, to be changed by `update`.

    Args:
      problem: Problem to train; its start value is copied.
      update: optax optimizer for a tree, or rule of rows for a table.
      state: State of the update in an earlier Step; None starts anew.
    """
    kind = Tree if hasattr(update, "init") else TableParameters
    return kind(problem, update, state)


def restore_memory(comm: Comm, memory: Any, saved: Sequence[list[Any]] | None) -> Any:
    """Return a reducer's memory as saved by a run on any number of ranks.

    On another number of ranks, rank r adds the own arrays of the saved ranks r, r+p,
    r+2p, … for p ranks: their sum over ranks remains. The arrays of the terms of all
    ranks are divided anew. Arrays of neither kind start anew.

    Args:
      comm: Ranks.
      memory: The initial memory of this rank.
      saved: Leaves of the memory of each saved rank; None: there are none.
    """
    if not saved:
        return memory
    import jax

    leaves, structure = jax.tree.flatten(memory)
    kinds = jax.tree.leaves(jax.tree.map(kinds_of, memory, is_leaf=is_part))
    shapes, saved_shapes = (
        # the numbers of terms may differ
        [
            np.shape(leaf)[kind == "terms" :]
            for leaf, kind in zip(each, kinds, strict=False)
        ]
        for each in (leaves, saved[0])
    )
    if len(leaves) != len(saved[0]) or shapes != saved_shapes:
        raise BadInput(
            f"expected the memory of the reducer and the buckets in the checkpoint, "
            f"arrays of shapes {saved_shapes[:4]}, got {shapes[:4]}; pass the "
            "--reduce, --bucket_mb and --strategy of the run to resume"
        )
    if len(saved) == comm.size:
        return jax.tree.unflatten(structure, saved[comm.rank])
    for n, kind in enumerate(kinds):
        if kind == "own":
            terms = [ranks_leaves[n] for ranks_leaves in saved[comm.rank :: comm.size]]
            leaves[n] = sum(terms, leaves[n])  # which is zero
        elif kind == "common":
            leaves[n] = saved[0][n]
        elif kind == "terms":
            all_terms = np.concatenate([ranks_leaves[n] for ranks_leaves in saved])
            leaves[n] = shard(all_terms, comm.rank, comm.size)
    return jax.tree.unflatten(structure, leaves)


def kinds_of(part: Any) -> Any:
    """Return a tree with the kind of each array of a part of a reducer's memory."""
    import jax

    if isinstance(part, TermMemory):
        return jax.tree.map(lambda leaf: "terms", part)
    if not isinstance(part, Memory):
        return "other"
    return Memory(
        jax.tree.map(lambda leaf: "own", part.own),
        jax.tree.map(lambda leaf: "common", part.common),
    )


def is_part(node: Any) -> bool:
    return isinstance(node, Memory | TermMemory)


def check_shards(comm: Comm, shards: int, possible: bool) -> int:
    """Return the number of logical shards: by default one per rank.

    Args:
      comm: Ranks.
      shards: Number of logical shards; 0: one per rank.
      possible: Whether the reducer sums several terms of a rank.
    """
    if shards and not possible:
        raise BadInput(
            f"expected a reducer that sums several terms of a rank with {shards} "
            "logical shards; pass --reduce=order_free, or leave --shards out"
        )
    if shards and shards < comm.size:
        raise BadInput(
            f"expected at least one logical shard for each of {comm.size} ranks, got "
            f"{shards}; pass --shards=<{comm.size} or more>"
        )
    return shards or comm.size


def split_shards(
    comm: Comm, shards: int, parts: int
) -> Callable[[np.ndarray], list[np.ndarray]]:
    """Return indices of a minibatch -> those of the microbatches of this rank.

    Args:
      comm: Ranks.
      shards: Number of logical shards of a minibatch.
      parts: Number of microbatches of a shard.
    """
    return partial(
        logical_microbatches,
        rank=comm.rank,
        size=comm.size,
        count=shards,
        parts=parts,
    )


def mean_loss(losses: Sequence[tuple[float, int]]) -> float:
    """Return the mean loss; each loss has a number of examples."""
    if len(losses) == 1:
        return losses[0][0]
    total = sum(examples for _, examples in losses)
    return sum(loss * examples for loss, examples in losses) / total


class Tree:
    """A pytree on this process's first device, and the state of an optax optimizer."""

    def __init__(self, problem: Problem, update: Update, state: Any) -> None:
        self.gradient, self.optimizer = problem.gradient, update
        start = update.init(problem.params) if state is None else state
        self.params, self.opt_state = self.put((problem.params, start))

    def put(self, tree: Any) -> Any:
        # JAX compiles a function anew for arrays that are committed to no device.
        import jax

        return jax.device_put(tree, jax.local_devices()[0])

    def mean_gradient(
        self, parts: Iterable[FeedPart | None], count: int
    ) -> tuple[Any, Any]:
        import jax

        from dml.models.gradient import accumulate

        full = [part for part in parts if part]
        batches = [part.batch for part in full]
        weights = [part.examples / count for part in full]
        loss, grads = jax.block_until_ready(
            accumulate(self.gradient, self.params, batches, weights)
        )
        return float(jax.device_get(loss)), grads

    def apply(self, grads: Any) -> None:
        import jax

        from dml.update.dense import apply

        self.params, self.opt_state = jax.block_until_ready(
            apply(self.optimizer, grads, self.opt_state, self.params)
        )

    def averaged(self) -> Any:
        """Return the parameters and the optimizer's moments."""
        return self.params, moments(self.opt_state)

    def assign(self, averages: Any) -> None:
        """Replace the values that `averaged` returned."""
        self.params, averaged = self.put(averages)
        self.opt_state = replace_moments(self.opt_state, averaged)

    @property
    def collect(self) -> Callable[[], Params]:
        return partial(identity, self.params)

    @property
    def state(self) -> Callable[[], Any]:
        import jax

        return partial(jax.device_get, self.opt_state)


class TableParameters:
    """Rows of a table, and the rule that changes them in place."""

    def __init__(self, problem: Problem, update: Update, state: Any) -> None:
        self.gradient, self.sums = problem.gradient, problem.sums
        self.shard: Shard = update(problem.params)
        if state is not None:
            for array, saved in zip(self.shard.state, state, strict=True):
                array[...] = saved

    def put(self, batch: Any) -> Any:
        return batch

    def mean_gradient(
        self, parts: Iterable[FeedPart | None], count: int
    ) -> tuple[float, Any]:
        loss, grads = 0.0, []
        full = [part for part in parts if part]
        for part in full:
            weight = part.examples / count
            part_loss, rows = self.gradient(self.shard.values, part.batch)
            loss += part_loss * weight
            weight = 1 if self.sums else weight
            if weight != 1 or len(full) > 1:
                # a copy: the next gradient may use the same memory
                rows = deepcopy(rows)._replace(values=rows.values * np.float32(weight))
            grads.append(rows)
        return loss, sum_rows(grads) if grads else None

    def apply(self, grads: Rows) -> None:
        self.shard.update(*grads)

    def averaged(self) -> Any:
        return self.shard.values, tuple(getattr(self.shard, "state", ()))

    def assign(self, averages: Any) -> None:
        values, state = averages
        self.shard.values[...] = values
        arrays = getattr(self.shard, "state", ())
        for array, average in zip(arrays, state, strict=True):
            array[...] = average

    @property
    def collect(self) -> Callable[[], Params]:
        return partial(getattr, self.shard, "values")

    @property
    def state(self) -> Callable[[], Any]:
        return partial(getattr, self.shard, "state", ())


def moments(state: Any) -> list[Any]:
    """Return the floating-point leaves of an optimizer's state; counts are left out."""
    import jax

    return [leaf for leaf in jax.tree.leaves(state) if _real(leaf)]


def replace_moments(state: Any, averages: Iterable[Any]) -> Any:
    """Return the state with the moments replaced by `averages`."""
    import jax

    new = iter(averages)
    return jax.tree.map(lambda leaf: next(new) if _real(leaf) else leaf, state)


def _real(leaf: Any) -> bool:
    return np.issubdtype(leaf.dtype, np.floating)
