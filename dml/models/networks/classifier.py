"""A classifier made of a sequence of flax modules.

    inputs → part → part → ... → logits_BxC

Each part is a layer of the model and has its own params. Targets are B integers; the
loss is the mean cross entropy.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen

from dml.models.initial import Spread, initial
from dml.models.layered import layered
from dml.models.layers.normalisation import apply_running, apply_training, params_of
from dml.types import Batch, Layer, Model, Params, identity


def classifier(
    parts: Mapping[str, linen.Module],
    shape: tuple[int, ...],
    spread: Spread | None = None,
    remat: bool = False,
) -> Model:
    """Return the model; scores and metrics use running statistics.

    Args:
      parts: Modules by name, in order; the last returns logits.
      shape: Shape of one example's input.
      spread: Standard deviations of initial params; see `initial`.
      remat: Whether the backward pass recomputes the activations inside each part.
    """
    names = tuple(parts)

    def init(key: jax.Array) -> Params:
        features, shapes = jax.ShapeDtypeStruct((1, *shape), jnp.float32), {}
        for name, part in parts.items():
            features, variables = jax.eval_shape(part.init_with_output, key, features)
            shapes[name] = params_of(variables)
        return initial(shapes, key, spread)

    def layer(name: str) -> Layer:
        def apply(params: Mapping[str, Params], inputs: Any, batch: Batch) -> Any:
            # inputs are a pair: features, and the sum of `drift` over earlier parts
            features, drifts = (batch.inputs, 0.0) if inputs is None else inputs
            features, drift = apply_training(parts[name], params[name], features)
            if name == names[-1]:
                return mean_cross_entropy(features, batch.targets) + drifts + drift
            return features, drifts + drift

        return Layer((name,), apply)

    def scores(params: Params, inputs: Any) -> Any:
        features = inputs
        for name, part in parts.items():
            features = apply_running(part, params[name], features)
        return features

    def metrics(params: Params, batch: Batch) -> dict[str, jax.Array]:
        return measures(scores(params, batch.inputs), batch.targets)

    return layered([layer(name) for name in names], init, metrics, scores, remat)


def measures(scores_BxC: jax.Array, targets: jax.Array) -> dict[str, jax.Array]:
    """Return accuracy and cross entropy, means over the batch."""
    return {
        "accuracy": (scores_BxC.argmax(axis=1) == targets).mean(),
        "cross_entropy": mean_cross_entropy(scores_BxC, targets),
    }


def mean_cross_entropy(scores_BxC: jax.Array, targets: jax.Array) -> jax.Array:
    """Return the mean cross entropy in float32."""
    return optax.losses.softmax_cross_entropy_with_integer_labels(
        jnp.float32(scores_BxC), targets
    ).mean()


class Part(linen.Module):
    """A module with params, between two functions without params."""

    layer: linen.Module
    before: Callable[[jax.Array], jax.Array] = identity
    after: Callable[[jax.Array], jax.Array] = identity

    def setup(self) -> None:
        linen.share_scope(self, self.layer)  # params have no extra level of names

    def __call__(self, features: jax.Array) -> jax.Array:
        return self.after(self.layer(self.before(features)))


def head(classes: int, dtype: Any) -> Part:
    """Return a dense layer from features of any shape to the logits of all classes."""
    return Part(linen.Dense(classes, dtype=dtype), flatten)


def flatten(features: jax.Array) -> jax.Array:
    """Return features with one axis per example."""
    return features.reshape(len(features), -1)
