import os
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.models.networks.glove import glove
from dml.strategies.glove.mesh import mesh
from dml.strategies.glove.problem import minibatches, take
from dml.strategies.serial import serial
from dml.types import BadInput
from dml.update.rows import AdaGrad, unpack
from dml.wire.mesh import devices
from tests.strategies.glove.mesh_main import (
    BATCH,
    CLOSE,
    CLOSE_LOSS,
    DIM,
    EPOCHS,
    MESHES,
    RATE,
    WORDS,
    alone,
    problem,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What 8 devices of another process came to, on every mesh."""
    path = tmp_path_factory.mktemp("mesh") / "found.npz"
    ended = subprocess.run(
        [sys.executable, "-m", "tests.strategies.glove.mesh_main", path],
        cwd=ROOT,
        env=os.environ
        | {
            "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "error",
        },
        text=True,
        capture_output=True,
        timeout=100,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    with np.load(path) as file:
        return dict(file)


@cache
def reference(tables):
    task = problem(tables)
    each = -(-task.examples // BATCH)
    batches = [b for _ in range(EPOCHS) for b in minibatches(task.examples, BATCH)]
    update = partial(AdaGrad, rate=RATE)

    def program(comm):
        return list(serial(task, batches, update, comm=comm, timer=Timer(), every=each))

    steps = alone(program)
    return [step.loss for step in steps], unpack(steps[-1].params(), DIM)


every_mesh = pytest.mark.parametrize("shape", MESHES)
one_and_two = pytest.mark.parametrize("tables", [1, 2])


@one_and_two
@every_mesh
def test_every_mesh_trains_as_minibatch_does(found, shape, tables):
    losses, end = reference(tables)
    np.testing.assert_allclose(found[f"{shape} {tables} losses"], losses, **CLOSE_LOSS)
    for field, numbers in end._asdict().items():
        mine = found[f"{shape} {tables} {field}"]
        assert mine.dtype == np.float32
        np.testing.assert_allclose(mine, numbers, **CLOSE)


@one_and_two
@every_mesh
def test_a_step_is_compiled_once_and_its_memory_used_again(found, shape, tables):
    assert found[f"{shape} {tables} compiled"] == 1
    assert found[f"{shape} {tables} reused"]


# In this process: one device.


def train(task, epochs=EPOCHS, batch=BATCH):
    def program(comm):
        axes = devices.mesh(batch=1, dim=1)
        options = {"comm": comm, "timer": Timer(), "axes": axes, "batch": batch}
        steps = mesh(task, range(epochs), RATE, **options)
        return [(step, unpack(step.params(), DIM)) for step in steps]

    return alone(program)


@one_and_two
def test_an_epoch_is_optax_on_the_gradients_of_the_model(tables):
    task = problem(tables)
    state, tiles = task.products.state, task.kernel.data
    model, optimizer = glove(WORDS, DIM, tables), optax.adagrad(1.0, 1.0, eps=0.0)
    params = state._replace(vector_squares_TxD=None, bias_squares_T=None)
    sums, total = optimizer.init(params), 0.0

    @jax.jit
    def descend(params, sums, records):
        size = len(records.logs)
        loss, grads = jax.value_and_grad(lambda p: size * model.loss(p, records))(
            params
        )
        # a bias moves at rate 1
        steps = grads._replace(vectors_TxD=RATE * grads.vectors_TxD)
        updates, sums = optimizer.update(steps, sums)
        return optax.apply_updates(params, updates), sums, loss

    for indices in minibatches(task.examples, BATCH):
        records = take(tiles, indices)
        params, sums, loss = descend(params, sums, records)
        total += float(loss)
    ((step, end),) = train(task, epochs=1)
    # both take exact roots: the order of float32 sums is all that differs
    assert step.loss == pytest.approx(total / len(tiles.logs), rel=1e-6)
    for mine, want in [
        (end.vectors_TxD, params.vectors_TxD),
        (end.biases_T, params.biases_T),
        (end.vector_squares_TxD, sums[0].sum_of_squares.vectors_TxD),
        (end.bias_squares_T, sums[0].sum_of_squares.biases_T),
    ]:
        np.testing.assert_allclose(mine, want, rtol=1e-5, atol=1e-6)


def test_a_state_taken_out_and_put_in_again_goes_on_bit_for_bit():
    task = problem(tables=2)
    whole = train(task, epochs=3)
    products = task.products._replace(state=whole[0][1])
    again = train(task._replace(products=products), epochs=2)
    assert [step.loss for step, _ in again] == [step.loss for step, _ in whole[1:]]
    for mine, want in zip(again[-1][1], whole[-1][1], strict=True):
        assert mine.tobytes() == want.tobytes()


def test_a_minibatch_may_be_longer_than_all_records():
    task = problem(tables=2)
    count = task.examples
    long, exact = (train(task, batch=b)[-1] for b in (10 * count, count))
    assert long[0].loss == exact[0].loss
    assert long[0].examples == count
    for mine, want in zip(long[1], exact[1], strict=True):
        assert mine.tobytes() == want.tobytes()


def test_columns_that_devices_cannot_share_are_named():
    task = problem(tables=2)
    axes = jax.sharding.AbstractMesh((1, 3), ("batch", "dim"))

    def program(comm):
        options = {"comm": comm, "timer": Timer(), "axes": axes, "batch": 9}
        next(mesh(task, range(1), RATE, **options))

    with pytest.raises(
        BadInput, match="3 devices can share equally, got 8; .*multiple"
    ):
        alone(program)


def test_ranks_that_are_not_in_the_mesh_are_named():
    task = problem(tables=2)
    axes = devices.mesh(batch=1, dim=1)

    def program(comm):
        options = {"comm": comm, "timer": Timer(), "axes": axes, "batch": 9}
        next(mesh(task, range(1), RATE, **options))

    with pytest.raises(BadInput, match="one run of JAX on 2 ranks, got one on 1"):
        sim.run(program, 2)
