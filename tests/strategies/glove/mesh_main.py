"""What GloVe on meshes of eight devices must do; prints each check's name."""

from functools import partial

import jax
import numpy as np
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.models.networks.glove import glove
from dml.strategies.glove import mesh as module
from dml.strategies.glove.problem import minibatches
from dml.strategies.glove.problem import problem as problem_of
from dml.strategies.glove.tiling import Order, tiled
from dml.strategies.serial import serial
from dml.types import BadInput, Problem
from dml.update.rows import AdaGrad, unpack
from dml.wire.mesh.devices import mesh
from dml.wire.plans.rotation import rounds
from tests.checks import run

WORDS, DIM, BATCH, RATE, EPOCHS = 60, 8, 301, 0.05, 3
MESHES = {1: ((1, 1), (2, 4)), 2: ((1, 2),)}  # by the number of tables
# minibatch takes roots to 5e-6, and each of at most 21 updates is off by as much
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
CLOSE_LOSS = {"rtol": 1e-5}
RECORD = [("word", "<i4"), ("context", "<i4"), ("value", "<f8")]


def problem(tables: int, seed: int = 0) -> Problem:
    """Draw records; 1 and 2 tables have different ones, as 1 lacks the diagonal."""
    rng = np.random.default_rng(seed)
    records = np.zeros(2000, RECORD)
    records["word"] = np.minimum(rng.zipf(1.3, len(records)), WORDS)
    records["context"] = rng.integers(1, WORDS + 1, len(records))
    records["value"] = 20 * rng.random(len(records))
    cells = [cell for one in rounds(4, tables) for task in one for cell in task]
    order = Order(cells, 4, tables, 16, 0, 10.0, 0.75)
    ((tiles, blocks),) = sim.run(lambda comm: tiled(comm, records, WORDS, order), 1)
    return problem_of(glove(WORDS, DIM, tables).init(1), tiles, blocks, BATCH)


def train(task, axes, epochs=EPOCHS, batch=BATCH):
    """Train on one rank; return the steps, and the state after each."""

    def program(comm):
        options = {"comm": comm, "timer": Timer(), "axes": axes, "batch": batch}
        steps = list(module.mesh(task, range(epochs), RATE, **options))
        held = [step.params.args[-1] for step in steps[:-1]]
        assert all(leaf.is_deleted() for state in held for leaf in state)  # reused
        return steps, unpack(steps[-1].params(), DIM)

    return sim.run(program, 1)[0]


def one_worker(task):
    each = -(-task.examples // BATCH)
    batches = [b for _ in range(EPOCHS) for b in minibatches(task.examples, BATCH)]
    update = partial(AdaGrad, rate=RATE)

    def program(comm):
        return list(serial(task, batches, update, comm=comm, timer=Timer(), every=each))

    steps = sim.run(program, 1)[0]
    return [step.loss for step in steps], unpack(steps[-1].params(), DIM)


def check_every_mesh_trains_as_minibatch_does_by_one_compilation():
    module.GROUP = 3  # 7 minibatches: 3 groups, 2 minibatches of the last one empty
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: "backend_compile" in event and compiled.append(event)
    )
    for tables, shapes in MESHES.items():
        task = problem(tables)
        before = [numbers.copy() for numbers in task.products.state]
        losses, end = one_worker(task)
        for shape in shapes:
            devices = np.array(jax.devices()[: np.prod(shape)]).reshape(shape)
            axes = jax.sharding.Mesh(devices, ("batch", "dim"))
            axes = mesh(batch=shape[0], dim=0) if np.prod(shape) == 8 else axes
            compiled.clear()
            with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
                steps, found = train(task, axes)
            assert len(compiled) == 2, shape  # the training, and what collects its end
            mine = [one.loss for one in steps]
            np.testing.assert_allclose(mine, losses, **CLOSE_LOSS)
            for mine, want in zip(found, end, strict=True):
                assert mine.dtype == np.float32
                np.testing.assert_allclose(mine, want, **CLOSE)
        assert all(map(np.array_equal, before, task.products.state))


def bits(state):
    return [leaf.tobytes() for leaf in state]


def check_a_state_taken_out_and_put_in_again_goes_on_bit_for_bit():
    task, axes = problem(2), mesh(batch=4, dim=0)
    steps, whole = train(task, axes, 3)
    begun, state = train(task, axes, 1)
    products = task.products._replace(state=state)
    again, end = train(task._replace(products=products), axes, 2)
    assert [one.loss for one in [*begun, *again]] == [one.loss for one in steps]
    assert bits(end) == bits(whole)


def check_a_minibatch_may_be_longer_than_all_records():
    task, axes = problem(2), mesh(batch=4, dim=0)
    long, exact = (train(task, axes, 1, task.examples * n) for n in (10, 1))
    assert long[0][0].loss == exact[0][0].loss
    assert long[0][0].examples == task.examples
    assert bits(long[1]) == bits(exact[1])


def check_columns_and_ranks_that_do_not_fit_are_refused():
    for ranks, columns, message in [
        (1, 3, "3 devices can share equally, got 8; .*multiple"),
        (2, 1, "one run of JAX on 2 ranks, got one on 1"),
    ]:
        axes = jax.sharding.AbstractMesh((1, columns), ("batch", "dim"))

        def program(comm, axes=axes):
            options = {"comm": comm, "timer": Timer(), "axes": axes, "batch": 9}
            next(module.mesh(problem(2), range(1), RATE, **options))

        with pytest.raises(BadInput, match=message):
            sim.run(program, ranks)


CHECKS = [each for name, each in [*globals().items()] if name.startswith("check_")]


if __name__ == "__main__":
    run(CHECKS, 8)
