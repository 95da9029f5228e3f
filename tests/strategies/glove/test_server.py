"""GloVe on parameter servers: the bits of one rank, and the loss of serial."""

import numpy as np
import pytest

from dml import sim
from dml.data.shards import bounds
from dml.metrics.timer import Timer
from dml.models.networks.glove import glove
from dml.sim.delays import delay_distribution, drawing
from dml.strategies.glove.problem import minibatches
from dml.strategies.glove.problem import problem as problem_of
from dml.strategies.glove.served import adagrad, on_servers, problem, squares, unpacked
from dml.strategies.glove.tiling import by_row, by_word, tiled
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup
from dml.strategies.server.workers import WorkerOptions
from dml.update.rows import unpack
from dml.wire.comm import Delayed, Metered
from dml.wire.server.consistency import CONSISTENCIES, Choice, consistency
from tests.strategies.glove.lattice import DIM, RATE, WORDS, corpus, on_ranks, order

both = pytest.mark.parametrize("tables", (1, 2))
USUAL = Choice()
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
    choice=USUAL,
    **more,
):
    """Train on any communicator; return the losses, and the state by word on rank 0."""
    comm = Delayed(Metered(comm), drawing(delay_distribution(DELAYS), 3, comm.rank))
    state, found, blocks = begun(comm, tables)
    who = roles(comm.size, servers, colocated)
    rule = consistency(name, choice, who.workers)
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
        table, losses = adagrad(DIM, RATE)(task.params), []
        table.state[0][:] = squares(state)
        for _ in range(epochs):
            losses.append(0.0)
            for start in range(0, count, batch):
                size = min(batch, count - start)
                total, hit = np.zeros_like(table.values), set()
                for worker in range(workers):
                    mine = start + np.arange(*bounds(size, worker, workers))
                    if len(mine):
                        records = task.take(mine)
                        loss, (at, grads) = task.gradient(table.values, records)
                        total[at] += grads * np.float32(len(mine) / size)
                        hit |= set(at.tolist())
                        losses[-1] += loss * len(mine) / count
                at = np.array(sorted(hit), np.int32)
                table.update(at, total[at])
        return losses, by_word(unpacked(table.values, *table.state, DIM), blocks)

    return sim.run(program, 1)[0]


def bits(state):
    return [numbers.tobytes() for numbers in state]


@both
@pytest.mark.parametrize("workers", (1, 2, 3, 4))
@pytest.mark.parametrize("servers", (1, 2, 3))
def test_bsp_has_the_bits_of_one_rank_that_adds_up_in_order(servers, workers, tables):
    losses, state = ran(workers + servers, servers=servers, tables=tables)
    want, one = accumulated(workers, tables)
    assert bits(state) == bits(one)
    assert losses == pytest.approx(want, rel=1e-12)  # a tree adds them up, in float64


@pytest.mark.parametrize("name, choice", [("ssp", Choice(0)), ("essp", Choice(0))])
def test_without_staleness_all_have_the_bits_of_bsp(name, choice):
    more = {"servers": 2, "epochs": 2}
    assert bits(ran(5, name, choice=choice, **more)[1]) == bits(ran(5, **more)[1])


@pytest.mark.parametrize("size", (1, 3))
def test_colocated_ranks_have_the_bits_of_workers_and_servers_apart(size):
    _, state = ran(size, servers=size, colocated=True)
    assert bits(state) == bits(accumulated(size)[1])


@pytest.mark.parametrize("batch", (1, 7, 1499, 10_000))
def test_any_minibatch_will_do(batch):
    """One record, so that workers have none; ragged ones; more than all records."""
    epochs = 1 if batch < 10 else 3
    _, state = ran(4, batch=batch, epochs=epochs)
    assert bits(state) == bits(accumulated(3, batch=batch, epochs=epochs)[1])


@both
def test_one_worker_is_minibatch_up_to_the_order_of_sums(tables):
    (one,) = on_ranks(1, "minibatch", tables=tables)
    losses, state = ran(2, tables=tables)
    # as in test_lattice: products of whole rows add up in another order
    assert losses == pytest.approx(one.losses, rel=1e-6)
    for found, want in zip(state, one.state, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@both
def test_a_gradient_is_that_of_a_whole_minibatch_of_such_records(tables):
    state, found, _ = sim.run(lambda comm: begun(comm, tables), 1)[0]
    state.biases_T[:] = np.random.default_rng(2).normal(size=len(state.biases_T))
    batch, count = 400, len(found.logs)
    task = problem(state, found, batch)
    tile = np.repeat(np.arange(len(found.starts) - 1), np.diff(found.starts))
    words = found.grid.words[tile] + found.words
    contexts = found.grid.contexts[tile] + found.contexts
    x, y = (state.vectors_TxD[rows].astype(float) for rows in (words, contexts))
    misses = (x * y).sum(axis=1) - found.logs
    misses += state.biases_T[words] + state.biases_T[contexts]
    for start, stop in ((0, 400), (130, 275), (count - 7, count)):
        some, size = slice(start, stop), min(batch, count - start // batch * batch)
        grads = (found.weights * misses)[some] * size / (stop - start)
        want = np.zeros((len(task.params), DIM + 1))
        for rows, other in ((words[some], y[some]), (contexts[some], x[some])):
            np.add.at(want, rows, np.column_stack([grads[:, None] * other, grads]))
        records = task.take(np.arange(start, stop))
        at = task.touched(records)
        assert sorted(at) == sorted({*words[some], *contexts[some]})
        loss, (_, sums) = task.gradient(task.params, records)
        mean = (0.5 * found.weights * misses**2)[some].mean()
        assert loss == pytest.approx(mean, rel=1e-5)
        np.testing.assert_allclose(sums[:, :DIM], want[at, :DIM], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(sums[:, -1], want[at, -1], rtol=1e-4, atol=1e-4)
        assert not sums[:, DIM:-1].any()


@pytest.mark.parametrize("name", sorted(CONSISTENCIES))
def test_every_consistency_reaches_the_loss_of_serial(name):
    """At most 2 % above it, at serial's rate, under random delays."""
    (one,) = on_ranks(1, "serial", epochs=12)
    losses, _ = ran(5, name, servers=2, batch=30, epochs=12)
    assert losses[-1] < 1.02 * one.losses[-1]


@pytest.mark.parametrize("name", ("async", "ssp", "essp"))
def test_habits_of_workers_keep_learning(name):
    """Prefetch, and a push after several clocks, are read over one's own writes."""
    worker_options = WorkerOptions(pushes=2, prefetch=True)
    losses, _ = ran(
        5, name, servers=2, batch=60, epochs=4, worker_options=worker_options
    )
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.8 * losses[0]
