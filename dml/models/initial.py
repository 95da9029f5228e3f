"""Initial params of a network, from their shapes and a random key."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dml.types import Params

# (names on the path of a leaf, shape) -> standard deviation of the leaf; 0.0 for zeros,
# None for the default
Spread = Callable[[tuple[str, ...], tuple[int, ...]], float | None]

EMBEDDING = 0.02  # standard deviation of the tables of BERT and GPT-2
ONES = ("scale", "var")  # flax's names of leaves that start at 1
ZEROS = ("bias", "mean")  # flax's names of leaves that start at 0


def initial(shapes: Any, key: jax.Array, spread: Spread | None = None) -> Params:
    """Draw params: LeCun-normal kernels, normal embeddings, scales of 1, biases of 0.

    Equal keys give bit-identical params. NumPy draws the numbers, because flax's
    initializers take seconds to compile in each of many processes.

    Args:
      shapes: A tree whose leaves are tuples or have a `shape`, like the result of
        jax.eval_shape.
      key: Random key.
      spread: Standard deviations that differ from the default; see Spread.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))

    def draw(path: Any, leaf: Any) -> jax.Array:
        names = tuple(entry.key for entry in path)
        shape = leaf if isinstance(leaf, tuple) else leaf.shape
        deviation = None if spread is None else spread(names, shape)
        if deviation is None and names[-1] in ONES:
            return jnp.ones(shape)
        if deviation is None:
            deviation = default_deviation(names[-1], shape)
        if not deviation:
            return jnp.zeros(shape)
        normal = rng.standard_normal(shape, np.float32)
        return jnp.asarray(np.float32(deviation) * normal)

    return jax.tree_util.tree_map_with_path(
        draw, shapes, is_leaf=lambda node: isinstance(node, tuple)
    )


def default_deviation(name: str, shape: tuple[int, ...]) -> float:
    """Return the default standard deviation of a leaf, by its last name."""
    if name in ZEROS or len(shape) < 2:
        return 0.0
    if name == "embedding":
        return EMBEDDING
    return 1 / math.sqrt(math.prod(shape[:-1]))  # LeCun: 1 / √(number of inputs)
