import jax
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.strategies.glove.mesh import mesh
from dml.types import BadInput
from dml.wire.mesh import devices
from tests.checks import said
from tests.strategies.glove.mesh_main import RATE, problem, train


def test_on_eight_devices():
    text = said("tests.strategies.glove.mesh_main")
    assert text == "every_mesh_trains_as_minibatch_does_by_one_compilation: ok\n", text


# In this process: one device.


def bits(state):
    return [leaf.tobytes() for leaf in state]


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
