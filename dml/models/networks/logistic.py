"""Multinomial logistic regression (Cox 1958).

Inputs are BxF with integer targets B; the loss is the mean cross entropy.
"""

import jax
import jax.numpy as jnp
import optax

from dml.types import Batch, Model, Params


def logistic(features: int, classes: int, l2: float = 0.0) -> Model:
    """Return the model.

    Args:
      features: Number of features.
      classes: Number of classes.
      l2: Weight of ½ |weights|² in the loss; the bias is not included.
    """

    def init(key: jax.Array) -> Params:
        # the loss is convex: the optimum does not depend on the start
        return {
            "weights": jnp.zeros((features, classes)),
            "bias": jnp.zeros(classes),
        }

    def loss(params: Params, batch: Batch) -> jax.Array:
        scores_BxC = scores(params, batch.inputs)
        entropy = optax.losses.softmax_cross_entropy_with_integer_labels(
            scores_BxC, batch.targets
        )
        return entropy.mean() + 0.5 * l2 * jnp.sum(params["weights"] ** 2)

    def metrics(params: Params, batch: Batch) -> dict[str, jax.Array]:
        predictions = scores(params, batch.inputs).argmax(axis=1)
        return {"accuracy": (predictions == batch.targets).mean()}

    return Model(init, loss, metrics)


def scores(params: Params, inputs_BxF: jax.Array) -> jax.Array:
    """Return the logits of every class, BxC."""
    return inputs_BxF @ params["weights"] + params["bias"][None, :]
