import jax
import numpy as np
import optax
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.models.networks.glove import glove
from dml.strategies.glove.mesh import mesh
from dml.strategies.glove.problem import minibatches, take
from dml.types import BadInput
from dml.wire.mesh import devices
from tests.checks import said
from tests.strategies.glove.mesh_main import BATCH, DIM, RATE, WORDS, problem, train


def test_on_eight_devices():
    text = said("tests.strategies.glove.mesh_main")
    assert text == "every_mesh_trains_as_minibatch_does_by_one_compilation: ok\n", text


# In this process: one device.


def bits(state):
    return [leaf.tobytes() for leaf in state]


@pytest.mark.parametrize("tables", [1, 2])
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
        params, sums, loss = descend(params, sums, take(tiles, indices))
        total += float(loss)
    (step,), end = train(task, devices.mesh(batch=1, dim=1), 1)
    # both take exact roots: the order of float32 sums is all that differs
    assert step.loss == pytest.approx(total / len(tiles.logs), rel=1e-6)
    squares = sums[0].sum_of_squares
    want = params.vectors_TxD, params.biases_T, squares.vectors_TxD, squares.biases_T
    for mine, wanted in zip(end, want, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)


def test_a_state_taken_out_and_put_in_again_goes_on_bit_for_bit():
    task, axes = problem(2), devices.mesh(batch=1, dim=1)
    steps, whole = train(task, axes, 3)
    begun, state = train(task, axes, 1)
    products = task.products._replace(state=state)
    again, end = train(task._replace(products=products), axes, 2)
    assert [one.loss for one in [*begun, *again]] == [one.loss for one in steps]
    assert bits(end) == bits(whole)


def test_a_minibatch_may_be_longer_than_all_records():
    task, axes = problem(2), devices.mesh(batch=1, dim=1)
    long, exact = (train(task, axes, 1, task.examples * n) for n in (10, 1))
    assert long[0][0].loss == exact[0][0].loss
    assert long[0][0].examples == task.examples
    assert bits(long[1]) == bits(exact[1])


@pytest.mark.parametrize(
    "ranks, columns, message",
    [
        (1, 3, "3 devices can share equally, got 8; .*multiple"),
        (2, 1, "one run of JAX on 2 ranks, got one on 1"),
    ],
)
def test_columns_and_ranks_that_do_not_fit_are_refused(ranks, columns, message):
    axes = jax.sharding.AbstractMesh((1, columns), ("batch", "dim"))

    def program(comm):
        options = {"comm": comm, "timer": Timer(), "axes": axes, "batch": 9}
        next(mesh(problem(2), range(1), RATE, **options))

    with pytest.raises(BadInput, match=message):
        sim.run(program, ranks)
