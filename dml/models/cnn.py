"""GRADIENT: a small convolutional network (LeCun 1998, with rectifiers) for images.

    conv 3x3 → pool 2x2 → conv 3x3, twice as wide → pool 2x2 → dense

Batches of inputs BxHxWxC and integer targets B in, mean cross entropy out.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen

from dml.models.classifier import Head, classifier
from dml.types import BadInput, Model

SMALLEST = 4  # pixels, for two pools


class Convolution(linen.Module):
    """Maps to maps of half the height and width."""

    width: int
    dtype: Any

    def setup(self) -> None:
        self.conv = linen.Conv(self.width, (3, 3), dtype=self.dtype)
        linen.share_scope(self, self.conv)

    def __call__(self, maps_BxHxWxC: jax.Array) -> jax.Array:
        maps_BxHxWxC = linen.relu(self.conv(maps_BxHxWxC))
        return linen.max_pool(maps_BxHxWxC, (2, 2), (2, 2))


def cnn(
    shape: tuple[int, ...],
    classes: int,
    width: int = 16,
    dtype: str = "float32",
    remat: bool = False,
) -> Model:
    """Make the model for images of that shape, HxWxC."""
    if len(shape) != 3 or min(shape) < 1 or min(shape[:2]) < SMALLEST:
        raise BadInput(
            f"expected images HxWxC, {SMALLEST} by {SMALLEST} at least, got {shape}; "
            "pass inputs BxHxWxC"
        )
    numbers = jnp.dtype(dtype)
    parts = {
        "Conv_0": Convolution(width, numbers),
        "Conv_1": Convolution(2 * width, numbers),
        "Dense_0": Head(classes, numbers),
    }
    return classifier(parts, shape, remat=remat)
