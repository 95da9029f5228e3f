"""A small network with batch normalisation in any dtype, and its training."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen

from dml.data.minibatches import draws, take
from dml.metrics.timer import Timer
from dml.models.layers.normalisation import norm
from dml.models.model_problem import model_problem
from dml.models.networks.classifier import classifier, head
from dml.types import STATISTICS, Batch
from dml.update.dense import make
from tests.strategies.small import alone

COUNT, BATCH, UPDATES = 64, 32, 3


class Normed(linen.Module):
    """A dense layer and a normalisation."""

    dtype: str

    @linen.compact
    def __call__(self, inputs):
        rows = linen.Dense(6, dtype=self.dtype, name="dense")(inputs)
        return norm(self, jnp.dtype(self.dtype))(name="norm")(rows)


@cache
def network(dtype):
    return classifier({"part": Normed(dtype), "head": head(4, jnp.dtype(dtype))}, (3,))


@cache
def data():
    rng = np.random.default_rng(1)
    inputs = rng.normal([1, -2, 0], [1, 2, 0.5], (COUNT, 3)).astype(np.float32)
    return Batch(inputs, rng.integers(0, 4, COUNT).astype(np.int32))


def train(strategy, dtype, **options):
    """Return the losses, and the params after the last update on every device."""
    model = network(dtype)
    start = jax.device_get(model.init(jax.random.key(0)))
    steps = list(
        strategy(
            model_problem(model, start, examples=COUNT, take=partial(take, data())),
            draws(COUNT, BATCH, 0, BATCH * UPDATES),
            make("momentum", 0.1),
            timer=Timer(),
            **{"comm": alone(), **options},
        )
    )
    return [step.loss for step in steps], steps[-1].params()


def statistics(params):
    """Return the running statistics by name."""
    return params["part"][STATISTICS]["norm"]
