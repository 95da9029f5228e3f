"""A multilayer perceptron with rectified hidden layers (Rumelhart 1986).

    dense → relu → ... → dense

The inputs of a batch may have any shape.
"""

import math

import jax.numpy as jnp
from flax import linen

from dml.models.networks.classifier import Part, classifier, flatten, head
from dml.types import BadInput, Model


def mlp(
    shape: tuple[int, ...],
    classes: int,
    widths: tuple[int, ...] = (128,),
    dtype: str = "float32",
    remat: bool = False,
) -> Model:
    """Return the model; without hidden layers it is linear.

    Args:
      shape: Shape of one example's input.
      classes: Number of classes.
      widths: Numbers of units in the hidden layers.
      dtype: Dtype of the arithmetic.
      remat: Whether the backward pass recomputes the inside of each layer.
    """
    if math.prod(shape) < 1 or min(widths, default=1) < 1:
        raise BadInput(
            f"expected inputs and layers of at least one unit, got {shape=} and "
            f"{widths=}; pass positive sizes"
        )
    arithmetic = jnp.dtype(dtype)
    hidden = {
        f"hidden_{index:02d}": Part(
            linen.Dense(width, dtype=arithmetic), flatten, linen.relu
        )
        for index, width in enumerate(widths)
    }
    return classifier(hidden | {"head": head(classes, arithmetic)}, shape, remat=remat)
