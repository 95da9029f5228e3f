"""GRADIENT: the start values of a network's params, by their shapes and a key."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dml.types import Params

# the names of a leaf's path and its shape -> the standard deviation of its numbers
# around 0 (0.0: all are 0), or None: as is the rule
Spread = Callable[[tuple[str, ...], tuple[int, ...]], float | None]

EMBEDDING = 0.02  # of BERT's and GPT-2's tables
ONES = ("scale", "var")  # flax's names of what multiplies, and of running variances
ZEROS = ("bias", "mean")


def initial(shapes: Any, key: jax.Array, spread: Spread | None = None) -> Params:
    """Draw params in the given shapes: LeCun's normal kernels, ones, zeros.

    The leaves of shapes are tuples, or have a shape, as jax.eval_shape returns them.
    Equal keys give equal bits: numpy draws, as flax's own draws take seconds to
    compile, on each of many processes.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))

    def drawn(path: Any, leaf: Any) -> jax.Array:
        names = tuple(entry.key for entry in path)
        shape = leaf if isinstance(leaf, tuple) else leaf.shape
        wide = None if spread is None else spread(names, shape)
        if wide is None and names[-1] in ONES:
            return jnp.ones(shape)
        if wide is None:
            wide = usual(names[-1], shape)
        if not wide:
            return jnp.zeros(shape)
        numbers = rng.standard_normal(shape, np.float32)
        return jnp.asarray(np.float32(wide) * numbers)

    return jax.tree_util.tree_map_with_path(
        drawn, shapes, is_leaf=lambda node: isinstance(node, tuple)
    )


def usual(name: str, shape: tuple[int, ...]) -> float:
    """Return the standard deviation of a leaf by its last name."""
    if name in ZEROS or len(shape) < 2:
        return 0.0
    if name == "embedding":
        return EMBEDDING
    return 1 / math.sqrt(math.prod(shape[:-1]))  # LeCun's: by what a number sums
