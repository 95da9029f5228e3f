"""Updates layer by layer, with an optimizer state for each name of params.

    full state      count, moments of b0, moments of b1
    states of b0    count, moments of b0            each state has the scalars
              b1    count, moments of b1

Only optimizers whose update of a layer does not depend on the gradients of other layers
can be used: not those that clip the norm of all gradients.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dml.types import Grads, Params
from dml.update.dense import Optimizer
from dml.update.paths import leaves_by_path, replace_leaves

HUGE = 1e15  # a gradient in `separable`; its square is finite in float32


class Companion(NamedTuple):
    """Params of another layer, with one element per leaf: name and structure."""

    name: str
    structure: Any
    axes: tuple[int, ...]  # number of axes of each leaf

    def ones(self) -> dict[str, Params]:
        """Return params whose elements are 1."""
        leaves = [jnp.ones((1,) * count) for count in self.axes]
        return {self.name: self.structure.unflatten(leaves)}


def companion(params: Mapping[str, Params], name: str) -> Companion | None:
    """Return a companion for the update of a layer; None if it has several leaves.

    In a tree of one leaf XLA turns Adam's division by a scalar into a product, which
    rounds twice. With a second leaf the bits are those of the full tree.
    """
    if len(jax.tree.leaves(params[name])) > 1 or len(params) == 1:
        return None
    others = [other for other in params if other != name]
    other = min(others, key=lambda other: len(jax.tree.leaves(params[other])))
    leaves, structure = jax.tree.flatten(params[other])
    return Companion(other, structure, tuple(len(leaf.shape) for leaf in leaves))


# Grads and state are donated, as by `dense.apply`.
@partial(jax.jit, static_argnums=(0, 1), donate_argnums=(2, 3))
def apply_layer(
    optimizer: Optimizer,
    other: Companion | None,
    grads: Grads,
    state: Any,
    params: Params,
) -> tuple[Params, Any, Params]:
    """Return params and state of a layer after an update, and companion params.

    Args:
      optimizer: A separable optimizer.
      other: See `companion`.
      grads: Gradients by name, of one name.
      state: State of the layer; see `split_state`.
      params: Params by name, of one name.
    """
    small = other.ones() if other else {}
    joined = replace_leaves(optimizer.init(params | small), leaves_by_path(state))
    updates, joined = optimizer.update(grads | small, joined, params | small)
    new = optax.apply_updates(params | small, updates)
    unused = [new.pop(other.name)] if other else []
    return new, replace_leaves(state, leaves_by_path(joined)), unused


def separable(optimizer: Optimizer, params: Mapping[str, Params]) -> bool:
    """Return whether the update of each layer depends on its own gradients only.

    Two updates of arrays of one element per leaf are compared: in one of them every
    second layer has a huge gradient, and the updates of the other layers must not
    change.
    """
    small = jax.tree.map(lambda leaf: jnp.ones((1,) * np.ndim(leaf)), dict(params))
    changed = set(list(small)[1::2])
    huge = {
        name: jax.tree.map(lambda leaf: leaf * HUGE, tree) if name in changed else tree
        for name, tree in small.items()
    }
    state = optimizer.init(small)
    one, other = (optimizer.update(grads, state, small) for grads in (small, huge))
    return all(
        bool(jnp.array_equal(leaf, changed_leaf))
        for (path, leaf), changed_leaf in zip(
            jax.tree_util.tree_leaves_with_path(one),
            jax.tree.leaves(other),
            strict=True,
        )
        if not changed & {getattr(entry, "key", None) for entry in path}
    )


def split_state(
    optimizer: Optimizer, params: Mapping[str, Params], state: Any = None
) -> dict[str, Any]:
    """Return the state of each name of params, in host memory.

    Args:
      optimizer: A separable optimizer.
      params: Params by name.
      state: The state for all params; None initializes it.
    """
    saved = leaves_by_path(state)
    states = {}
    for name, tree in params.items():  # on the device is one layer at a time
        initial = jax.device_get(optimizer.init({name: tree}))
        states[name] = initial if state is None else replace_leaves(initial, saved)
    return states


def join_states(
    optimizer: Optimizer, params: Mapping[str, Params], states: Mapping[str, Any]
) -> Any:
    """Return the state for all params; see `split_state`."""
    leaves = {
        path: leaf
        for one in states.values()
        for path, leaf in leaves_by_path(one).items()
    }
    return replace_leaves(jax.eval_shape(optimizer.init, dict(params)), leaves)
