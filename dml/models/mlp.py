"""GRADIENT: a perceptron with hidden layers of rectifiers (Rumelhart 1986).

    dense → relu → ... → dense

Batches of inputs of any shape and integer targets B in, mean cross entropy out.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen

from dml.models.classifier import Head, classifier
from dml.types import BadInput, Model


class Hidden(linen.Module):
    """A layer of units, each of which sees all of what came before."""

    width: int
    dtype: Any

    def setup(self) -> None:
        self.dense = linen.Dense(self.width, dtype=self.dtype)
        linen.share_scope(self, self.dense)

    def __call__(self, features: jax.Array) -> jax.Array:
        return linen.relu(self.dense(features.reshape(len(features), -1)))


def mlp(
    shape: tuple[int, ...],
    classes: int,
    widths: tuple[int, ...] = (128,),
    dtype: str = "float32",
    remat: bool = False,
) -> Model:
    """Make the model for inputs of that shape; without widths it is linear."""
    if math.prod(shape) < 1 or min(widths, default=1) < 1:
        raise BadInput(
            f"expected inputs and layers of one number at least, got {shape=} and "
            f"{widths=}; pass positive ones"
        )
    numbers = jnp.dtype(dtype)
    hidden = {
        f"hidden_{number:02d}": Hidden(width, numbers)
        for number, width in enumerate(widths)
    }
    return classifier(hidden | {"head": Head(classes, numbers)}, shape, remat=remat)
