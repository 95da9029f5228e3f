"""GRADIENT: a small convolutional network (LeCun 1998, with rectifiers) for images.

    conv 3x3 → pool 2x2 → conv 3x3, twice as wide → pool 2x2 → dense

Batches of inputs BxHxWxC and integer targets B in, mean cross entropy out.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen

from dml.types import BadInput, Batch, Model, Params

SMALLEST = 4  # pixels, for two pools


class Network(linen.Module):
    """Images to the log-odds of every class."""

    classes: int
    width: int

    @linen.compact
    def __call__(self, images_BxHxWxC: jax.Array) -> jax.Array:
        maps_BxHxWxC = images_BxHxWxC
        for width in (self.width, 2 * self.width):
            maps_BxHxWxC = linen.relu(linen.Conv(width, (3, 3))(maps_BxHxWxC))
            maps_BxHxWxC = linen.max_pool(maps_BxHxWxC, (2, 2), (2, 2))
        features_BxF = maps_BxHxWxC.reshape(len(maps_BxHxWxC), -1)
        return linen.Dense(self.classes)(features_BxF)


def cnn(shape: tuple[int, ...], classes: int, width: int = 16) -> Model:
    """Make the model for images of that shape, HxWxC."""
    if len(shape) != 3 or min(shape) < 1 or min(shape[:2]) < SMALLEST:
        raise BadInput(
            f"expected images HxWxC, {SMALLEST} by {SMALLEST} at least, got {shape}; "
            "pass inputs BxHxWxC"
        )
    network = Network(classes, width)

    def init(key: jax.Array) -> Params:
        shapes = jax.eval_shape(network.init, key, jnp.zeros((1, *shape)))["params"]
        # flax's own draws take seconds to compile, on each of many processes
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))

        def drawn(leaf: jax.ShapeDtypeStruct) -> jax.Array:
            if leaf.ndim == 1:
                return jnp.zeros(leaf.shape)  # a bias
            spread = 1 / math.sqrt(math.prod(leaf.shape[:-1]))  # LeCun's
            return jnp.asarray(spread * rng.standard_normal(leaf.shape), jnp.float32)

        return jax.tree.map(drawn, shapes)

    def scores(params: Params, images_BxHxWxC: jax.Array) -> Any:
        return network.apply({"params": params}, images_BxHxWxC)

    def loss(params: Params, batch: Batch) -> jax.Array:
        return optax.losses.softmax_cross_entropy_with_integer_labels(
            scores(params, batch.inputs), batch.targets
        ).mean()

    def metrics(params: Params, batch: Batch) -> dict[str, jax.Array]:
        guesses = scores(params, batch.inputs).argmax(axis=1)
        return {"accuracy": (guesses == batch.targets).mean()}

    return Model(init, loss, metrics)
