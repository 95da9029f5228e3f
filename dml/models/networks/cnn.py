"""A small convolutional network (LeCun 1998, with rectifiers) for images BxHxWxC.

conv 3x3 → pool 2x2 → conv 3x3, twice as wide → pool 2x2 → dense
"""

import jax
import jax.numpy as jnp
from flax import linen

from dml.models.networks.classifier import Part, classifier, head
from dml.types import BadInput, Model

MIN_SIDE = 4  # pixels; two poolings divide the side by 4


def rectify_and_pool(maps_BxHxWxC: jax.Array) -> jax.Array:
    """Return the rectified maps at half the height and width."""
    return linen.max_pool(linen.relu(maps_BxHxWxC), (2, 2), (2, 2))


def cnn(
    shape: tuple[int, ...],
    classes: int,
    width: int = 16,
    dtype: str = "float32",
    remat: bool = False,
) -> Model:
    """Return the model for images.

    Args:
      shape: Shape of an image, HxWxC.
      classes: Number of classes.
      width: Number of maps of the first convolution.
      dtype: Dtype of the arithmetic.
      remat: Whether the backward pass recomputes the inside of each layer.
    """
    if len(shape) != 3 or min(shape) < 1 or min(shape[:2]) < MIN_SIDE:
        raise BadInput(
            f"expected images HxWxC of {MIN_SIDE} by {MIN_SIDE} or more, got {shape}; "
            "pass inputs BxHxWxC"
        )
    arithmetic = jnp.dtype(dtype)
    parts = {
        f"Conv_{n}": Part(
            linen.Conv((1 + n) * width, (3, 3), dtype=arithmetic),
            after=rectify_and_pool,
        )
        for n in range(2)
    }
    parts["Dense_0"] = head(classes, arithmetic)
    return classifier(parts, shape, remat=remat)
