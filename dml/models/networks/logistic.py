"""Multinomial logistic regression (Cox 1958), the smallest of the models.

Batches of inputs BxF and integer targets B in, mean cross entropy out.
"""

import jax
import jax.numpy as jnp
import optax

from dml.types import Batch, Model, Params


def logistic(features: int, classes: int, l2: float = 0.0) -> Model:
    """Make the model; l2 adds half of l2 times the squared weights, not the bias."""

    def init(key: jax.Array) -> Params:
        # convex: zeros are as good a start as any, and the key is not needed
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
        guesses = scores(params, batch.inputs).argmax(axis=1)
        return {"accuracy": (guesses == batch.targets).mean()}

    return Model(init, loss, metrics)


def scores(params: Params, inputs_BxF: jax.Array) -> jax.Array:
    """Return the log-odds of every class, BxC."""
    return inputs_BxF @ params["weights"] + params["bias"][None, :]
