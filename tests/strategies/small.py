"""A small network of layers, two of which share a weight, and the ways to train it."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dml import sim
from dml.data.minibatches import draws, take
from dml.metrics.timer import Timer
from dml.models.gradient import gradient
from dml.models.layered import layered
from dml.models.model_problem import model_problem
from dml.types import Batch, Layer
from dml.update.dense import make

COUNT, WIDTH, BATCH = 50, 12, 16
DRAWN = 3 * BATCH + 7  # the last minibatch is uneven


def _ends(params, given, batch):
    if given is None:
        return batch.inputs @ params["embed"]
    errors = given @ params["embed"].T - batch.targets
    return jnp.mean(errors**2)


def _block(name):
    def apply(params, given, batch):
        return given + jnp.tanh(given @ params[name]["w"] + params[name]["c"])

    return Layer((name,), apply)


def _init(key):
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))

    def weights():
        return jnp.asarray(0.3 * rng.standard_normal((WIDTH, WIDTH)), jnp.float32)

    blocks = {
        f"b{n}": {"w": weights(), "c": jnp.full(WIDTH, 0.1 * n, jnp.float32)}
        for n in (1, 2)
    }
    return {"embed": weights(), **blocks}


ENDS = Layer(("embed",), _ends)
MODEL = layered(
    [ENDS, _block("b1"), _block("b2"), ENDS], _init, lambda params, batch: {}, _ends
)


@cache
def data():
    rng = np.random.default_rng(1)
    inputs, targets = rng.standard_normal((2, COUNT, WIDTH)).astype(np.float32)
    return Batch(inputs, targets)


@cache
def start_params():
    return MODEL.init(jax.random.key(0))


@cache  # one optimizer, one compilation
def optimizer(name, sliced):
    lies = {"axis": "data", "like": start_params()} if sliced else {}
    return make(name, 0.01, clip=0 if name == "sgd" else 1.0, **lies)


def alone():
    """Return a communicator of one virtual rank."""
    return sim.run(lambda comm: comm, 1)[0]


def problem(params=None):
    """Return the network and its data."""
    start = start_params() if params is None else params
    return model_problem(MODEL, start, examples=COUNT, take=partial(take, data()))


def train(strategy, *, name="adam", start=0, params=None, drawn=DRAWN, **options):
    """Return the steps; states are collected, for a later step takes their memory."""
    steps = strategy(
        problem(params),
        draws(COUNT, BATCH, 0, drawn, start),
        optimizer(name, bool(options.get("zero"))),
        timer=Timer(),
        **{"comm": alone(), **options},
    )

    def kept(step):
        collected = jax.device_get(step.params())
        return step._replace(state=step.state(), params=collected, memory=step.memory())

    return list(map(kept, steps))


def square(index):
    """Return the squared norm of the first gradient of these examples."""
    batch = jax.device_put(take(data(), index))
    _, grads = gradient(MODEL.loss, start_params(), batch)
    return sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(grads))


def apart(one, other):
    """Return the largest difference between leaves of two trees."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


CLOSE = 3e-6  # four updates of 0.01; float32 sums of 16 examples in another order


def close(found, plain):
    losses = [step.loss for step in plain]
    assert [step.loss for step in found] == pytest.approx(losses, rel=1e-5)
    assert apart(found[-1].params, plain[-1].params) < CLOSE


def same_bits(one, other):
    return len(one) == len(other) and all(
        a.loss == b.loss and apart(a.params, b.params) == 0
        for a, b in zip(one, other, strict=True)
    )
