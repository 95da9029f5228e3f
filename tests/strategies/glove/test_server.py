"""GloVe on parameter servers: the bits of one rank, and the loss of serial."""

import numpy as np
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.models.networks.glove import glove
from dml.sim.delays import drawing, law
from dml.strategies.glove.problem import minibatches
from dml.strategies.glove.problem import problem as problem_of
from dml.strategies.glove.served import adagrad, on_servers, problem, squares, unpacked
from dml.strategies.glove.tiling import by_row, by_word, tiled
from dml.strategies.serial import serial
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup
from dml.strategies.server.workers import WorkerOptions
from dml.update.rows import unpack
from dml.wire.comm import Delayed, Metered
from dml.wire.server.consistency import CONSISTENCIES, Choice, consistency
from tests.strategies.glove.lattice import DIM, RATE, WORDS, corpus, on_ranks, order

both = pytest.mark.parametrize("tables", (1, 2))
DELAYS = "shifted_exponential:1,1"


def begun(comm, tables=2, seed=1):
    """Return a state, its rows as the tiles' are, with the tiles and the blocks."""
    found, blocks = tiled(comm, corpus(), WORDS, order(tables))
    return by_row(glove(WORDS, DIM, tables).init(seed), blocks), found, blocks


def train(
    comm,
    name="bsp",
    *,
    tables=2,
    servers=1,
    colocated=False,
    batch=200,
    epochs=3,
    **more,
):
    """Train on any communicator; return the losses, and the state by word on rank 0."""
    comm = Delayed(Metered(comm), drawing(law(DELAYS), 3, comm.rank))
    state, found, blocks = begun(comm, tables)
    who = roles(comm.size, servers, colocated)
    rule = consistency(name, Choice(), who.workers)
    timer = Timer(comm.Wtime)
    task, losses = problem_of(state, found, blocks, batch), []
    count = task.examples
    batches = (some for _ in range(epochs) for some in minibatches(count, batch))
    own = {"setup": Setup(who, rule, **more), "every": -(-count // batch)}
    for step in on_servers(task, batches, RATE, comm=comm, timer=timer, **own):
        losses.append(step.loss)
        if step.epoch == epochs:
            table = step.params()
    state = None if comm.rank else by_word(unpack(table, DIM), blocks)
    return losses, state


def ran(size, *args, **more):
    """Train on virtual ranks; return what rank 0 has."""
    found = sim.run(lambda comm: train(comm, *args, **more), size)
    assert all(losses == found[0][0] for losses, _ in found)
    assert all(state is None for _, state in found[1:])
    return found[0]


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


@both
@pytest.mark.parametrize("workers", (1, 3, 4))
@pytest.mark.parametrize("servers", (0, 1, 2, 3))  # 0: on the workers
def test_bsp_has_the_bits_of_one_rank_that_adds_up_in_order(servers, workers, tables):
    options = {"servers": servers, "colocated": not servers, "tables": tables}
    losses, state = ran(workers + servers, **options)
    want, one = accumulated(workers, tables)
    assert bits(state) == bits(one)
    assert losses == pytest.approx(want, rel=1e-12)  # a tree adds them up, in float64


@pytest.mark.parametrize("batch", (1, 7, 1499, 10_000))
def test_any_minibatch_will_do(batch):
    """One record, so that workers have none; ragged ones; more than all records."""
    epochs = 1 if batch < 10 else 3
    _, state = ran(4, batch=batch, epochs=epochs)
    assert bits(state) == bits(accumulated(3, batch=batch, epochs=epochs)[1])


@both
@pytest.mark.parametrize("workers", (1, 3))
def test_workers_are_minibatch_up_to_the_order_of_sums(workers, tables):
    (one,) = on_ranks(1, "minibatch", tables=tables)
    losses, state = ran(workers + 1, tables=tables)
    # as in test_lattice: products of whole rows add up in another order
    assert losses == pytest.approx(one.losses, rel=1e-6)
    for found, want in zip(state, one.state, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", sorted(CONSISTENCIES))
def test_every_consistency_reaches_the_loss_of_serial(name):
    """At most 2 % above it, at serial's rate, under random delays.

    Prefetch, and a push after two clocks, are read over one's own writes.
    """
    (one,) = on_ranks(1, "serial", epochs=12)
    options = [WorkerOptions()]
    if name in ("async", "ssp", "essp"):
        options.append(WorkerOptions(pushes=2, prefetch=True))
    for habits in options:
        own = {"servers": 2, "batch": 30, "epochs": 12, "worker_options": habits}
        losses, _ = ran(5, name, **own)
        assert losses[-1] < 1.02 * one.losses[-1], habits
