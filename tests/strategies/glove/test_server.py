"""GloVe on parameter servers: the bits of one rank, and the loss of serial."""

import numpy as np
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.sim.delays import delay_distribution, step_seconds
from dml.strategies.glove.problem import minibatches
from dml.strategies.glove.served import adagrad, problem, squares, unpacked
from dml.strategies.glove.tiling import by_word
from dml.strategies.serial import serial
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup
from dml.strategies.server.workers import WorkerOptions
from dml.wire.comm import Delayed
from dml.wire.server.consistency import CONSISTENCIES, Choice, consistency
from tests.strategies.glove.lattice import DIM, RATE, begun, on_ranks

both = pytest.mark.parametrize("tables", (1, 2))
PLAIN = WorkerOptions()


def ran(size, name="bsp", servers=1, colocated=False, worker_options=PLAIN, **k):
    """Train on virtual ranks with stragglers; return what rank 0 has."""
    who = roles(size, servers, colocated)
    rule = consistency(name, Choice(), who.workers)

    def late(comm):
        return Delayed(
            comm,
            step_seconds(delay_distribution("shifted_exponential:1,1"), 3, comm.rank),
        )

    setup = Setup(who, rule, worker_options=worker_options)
    first, *others = on_ranks(size, "server", setup=setup, late=late, **k)
    assert all(one.state is None for one in others)
    return first


def accumulated(workers, tables=2, batch=200, epochs=3):
    """One rank takes all workers' parts in their order, sums them, then updates."""

    def program(comm):
        state, found, blocks = begun(comm, tables)
        task, count = problem(state, found, batch), len(found.logs)
        batches = (some for _ in range(epochs) for some in minibatches(count, batch))
        own = {"accumulate": workers, "every": -(-count // batch)}
        own |= {"comm": comm, "timer": Timer(), "state": [squares(state)]}
        *steps, last = serial(task, batches, adagrad(DIM, RATE), **own)
        end = unpacked(last.params(), *last.state(), DIM)
        return [step.loss for step in (*steps, last)], by_word(end, blocks)

    return sim.run(program, 1)[0]


def bits(state):
    return [numbers.tobytes() for numbers in state]


@pytest.mark.parametrize(
    "servers, workers, tables",  # 0 servers: on the workers
    [(0, 1, 1), (0, 3, 2), (1, 3, 1), (2, 1, 2), (2, 4, 1), (3, 4, 2)],
)
def test_bsp_has_the_bits_of_one_rank_that_adds_up_in_order(servers, workers, tables):
    options = {"servers": servers, "colocated": not servers, "tables": tables}
    losses, state, _ = ran(workers + servers, **options)
    want, one = accumulated(workers, tables)
    assert bits(state) == bits(one)
    assert losses == pytest.approx(want, rel=1e-12)  # a tree adds them up, in float64


@pytest.mark.parametrize("batch", (1, 1499, 10_000))
def test_any_minibatch_will_do(batch):
    """One record, so that workers have none; ragged ones; more than all records."""
    epochs = 1 if batch < 10 else 3
    _, state, _ = ran(4, batch=batch, epochs=epochs)
    assert bits(state) == bits(accumulated(3, batch=batch, epochs=epochs)[1])


@both
@pytest.mark.parametrize("workers", (1, 3))
def test_workers_are_minibatch_up_to_the_order_of_sums(workers, tables):
    (one,) = on_ranks(1, "minibatch", tables=tables)
    losses, state, _ = ran(workers + 1, tables=tables)
    # as in test_lattice: products of whole rows add up in another order
    assert losses == pytest.approx(one.losses, rel=1e-6)
    for found, want in zip(state, one.state, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", sorted(CONSISTENCIES))
def test_every_consistency_reaches_the_loss_of_serial(name):
    """Or a smaller one, at serial's rate, under random delays.

    Prefetch, and a push after two clocks, are read over one's own writes.
    """
    (one,) = on_ranks(1, "serial", epochs=6)
    options = [WorkerOptions()]
    if name == "essp":
        options.append(WorkerOptions(push_period=2, prefetch=True))
    for habits in options:
        own = {"servers": 2, "batch": 30, "epochs": 6, "worker_options": habits}
        losses, *_ = ran(5, name, **own)
        assert losses[-1] <= one.losses[-1], habits
