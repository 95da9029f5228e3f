"""NNX networks: batch normalisation on any ranks; random state is refused."""

import jax
import numpy as np
import optax
import pytest
from flax import nnx

from dml import sim
from dml.data.minibatches import draws, take
from dml.metrics.timer import Timer
from dml.models.model_problem import model_problem
from dml.models.nnx_model import nnx_model
from dml.strategies.serial import serial
from dml.strategies.synchronous import synchronous
from dml.types import STATISTICS, BadInput, Batch
from dml.wire.collectives import star_allreduce
from dml.wire.comm import Metered
from dml.wire.reducers.exact import exact

RNG = np.random.default_rng(0)
DATA = Batch(*(RNG.standard_normal((2, 12, 3)).astype(np.float32) + 5))


class Network(nnx.Module):
    def __init__(self, dropout=0.0):
        rngs = nnx.Rngs(0)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.out = nnx.Linear(3, 3, rngs=rngs)
        self.dropout = nnx.Dropout(dropout, rngs=rngs) if dropout else None

    def __call__(self, inputs):
        return self.out(self.norm(inputs))


def loss(network, batch):
    return ((network(batch.inputs) - batch.targets) ** 2).mean()


def metrics(network, batch):
    return {"error": loss(network, batch)}


MODEL = nnx_model(Network(), loss, metrics)


def trained(strategy, comm, rate=1.0, **options):
    """Return the params after an update by all examples."""
    problem = model_problem(
        MODEL, MODEL.init(None), examples=12, take=lambda i: take(DATA, i)
    )
    batches = draws(12, 12, 0, 12)
    how = {"comm": comm, "timer": Timer(), **options}
    (step,) = strategy(problem, batches, optax.sgd(rate), **how)
    return jax.device_get(step.params())


def test_running_statistics_become_those_of_the_examples():
    (params,) = sim.run(lambda comm: trained(serial, Metered(comm)), 1)
    found = params[STATISTICS]["norm"]
    np.testing.assert_allclose(found["mean"], DATA.inputs.mean(0), rtol=1e-5)
    np.testing.assert_allclose(found["var"], DATA.inputs.var(0), rtol=1e-4)
    (half,) = sim.run(lambda comm: trained(serial, Metered(comm), 0.5), 1)
    mean = half[STATISTICS]["norm"]["mean"]
    np.testing.assert_allclose(mean, DATA.inputs.mean(0) / 2, rtol=1e-5)


def test_metrics_use_running_statistics():
    start = MODEL.init(None)
    moved = {
        **start,
        STATISTICS: jax.tree.map(lambda leaf: leaf + 1, start[STATISTICS]),
    }
    errors = [MODEL.metrics(params, DATA)["error"] for params in (start, moved)]
    assert errors[0] != errors[1]
    losses = [MODEL.loss(params, DATA) for params in (start, moved)]
    assert losses[0] == losses[1]


def test_ranks_have_equal_bits_and_the_mean_of_their_statistics():
    def program(comm):
        return trained(synchronous, Metered(comm), reducer=exact(star_allreduce))

    one, other = sim.run(program, 2)
    jax.tree.map(np.testing.assert_array_equal, one, other)
    mean = one[STATISTICS]["norm"]["mean"]
    np.testing.assert_allclose(mean, DATA.inputs.mean(0), rtol=1e-5)


def test_random_state_is_refused():
    with pytest.raises(BadInput, match=r"got dropout/.*; remove nnx\.Dropout"):
        nnx_model(Network(0.5), loss)


@pytest.mark.parametrize(
    "network, kind", ((Network(), "BatchStat"), (Network(0.5), "RngKey|RngCount"))
)
def test_a_state_with_other_variables_than_params_is_no_start_value(network, kind):
    structure, state = nnx.split(network)
    with pytest.raises(BadInput, match=rf"got {kind}.*nnx_model"):
        model_problem(MODEL, state, examples=12, take=lambda index: index)
