"""One worker has the bits of serial by every strategy; the promises of several."""

import numpy as np
import pytest

from dml import sim
from dml.strategies import strategy
from dml.strategies.shared.average import average
from dml.strategies.shared.cyclades import cyclades
from dml.strategies.shared.hogwild import hogwild
from dml.types import BadInput, Kernel
from dml.wire.memory import atomic, locked, round_robin
from dml.wire.memory import global_lock as whole
from dml.wire.memory import hogwild as lock_free
from dml.wire.memory import state as memory
from dml.wire.memory.conflicts import hubs
from tests.strategies.shared import forgetful
from tests.strategies.shared.small import (
    PROBLEMS,
    RATES,
    How,
    begin,
    documents,
    ratings,
    visits,
)
from tests.strategies.shared.tally import tally

POLICIES = [lock_free, atomic, locked, whole, round_robin]
EPOCHS = 3


def settings(name="documents", batch=16, **more):
    return How(lambda epoch: RATES[name] * 0.8 ** (epoch - 1), batch, **more)


def run(way, problem, how, threads=1, **more):
    """Train on one rank; return the steps, and the table at the end."""

    def program(comm):
        steps = list(begin(way, problem, how, comm, EPOCHS, threads, **more))
        return steps, steps[-1].params()

    return sim.run(program, 1)[0]


def serial(problem, how, share=slice(None)):
    """Descend on a share of the blocks in plain Python: the oracle of strategies."""
    model, edges = problem.kernel.model, problem.kernel.data.edges
    table, count = problem.params.copy(), problem.examples
    speed, kind = np.zeros_like(table), table.dtype.type
    momentum = kind(how.momentum)
    for epoch in range(1, EPOCHS + 1):
        data, rate = (
            model.paced(problem.kernel.data, how.rate(epoch)),
            kind(how.rate(epoch)),
        )
        order = visits(how, epoch, count)
        numbers = [
            range(b * how.batch, (b + 1) * how.batch) for b in order.visits[share]
        ]
        steps = [e for block in numbers for e in block if e < count]
        for t, e in enumerate(steps):
            rows = edges.rows[edges.starts[e] : edges.starts[e + 1]]
            grads = np.empty((len(rows), *table.shape[1:]), table.dtype)
            if not model.gradient(table, data, e, t, grads)[1]:
                continue
            for s, r in enumerate(rows):
                speed[r] = grads[s] = grads[s] + momentum * speed[r]
                model.move(table, r, grads, s, rate)
                table[r] += grads[s]
        for one in (table, speed):
            model.settle(one, data, len(steps))
    return table


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("momentum", (0.0, 0.5))
def test_one_worker_has_the_bits_of_serial_by_every_way(name, momentum):
    problem, how = PROBLEMS[name](), settings(name, momentum=momentum)
    want = serial(problem, how)
    nothing = np.zeros(len(problem.params), bool)
    assert not np.array_equal(want, problem.params)
    for policy in POLICIES:
        found = run(hogwild, problem, how, policy=policy)[1]
        assert np.array_equal(found, want), policy
    assert np.array_equal(run(average, problem, how)[1], want)
    assert np.array_equal(run(cyclades, problem, how, deferred=nothing)[1], want)


def test_float64_and_a_batch_of_one_have_the_bits_of_serial():
    problem, how = ratings(100, "float64"), settings("ratings", batch=1)
    want = serial(problem, how)
    assert want.dtype == np.float64
    assert np.array_equal(run(hogwild, problem, how)[1], want)
    everything = np.ones(len(want), bool)  # minibatches of one are serial, too
    assert np.array_equal(run(cyclades, problem, how, deferred=everything)[1], want)


def in_batches(problem, how, deferred):
    """Descend in plain Python, with deferred rows that wait for a batch's end."""
    model, edges = problem.kernel.model, problem.kernel.data.edges
    table, count = problem.params.copy(), problem.examples
    for epoch in range(1, EPOCHS + 1):
        data, rate = (
            model.paced(problem.kernel.data, how.rate(epoch)),
            table.dtype.type(0),
        )
        rate += table.dtype.type(how.rate(epoch))
        for position, block in enumerate(visits(how, epoch, count).visits):
            first, sums = block * how.batch, {}
            for e in range(first, min(first + how.batch, count)):
                t = position * how.batch + (0 if deferred.all() else e - first)
                rows = edges.rows[edges.starts[e] : edges.starts[e + 1]]
                grads = np.empty((len(rows), *table.shape[1:]), table.dtype)
                if not model.gradient(table, data, e, t, grads)[1]:
                    continue
                for s, r in enumerate(rows):
                    if deferred[r]:
                        sums[r] = sums.get(r, np.zeros_like(grads[s])) + grads[s]
                    else:
                        model.move(table, r, grads, s, rate)
                        table[r] += grads[s]
            for r, total in sums.items():
                total = np.array([total])
                model.move(table, r, total, 0, rate)
                table[r] += total[0]
        model.settle(table, data, count)
    return table


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("share", (1.0, 0.05, 0.0))
def test_batches_have_the_bits_of_one_worker_on_any_number(name, share):
    problem = PROBLEMS[name]()
    edges, width = problem.kernel.data.edges, len(problem.params)
    deferred = hubs(edges, width, share)
    assert deferred.any() == (share < 1) and deferred.all() == (share == 0)
    for batch in (1, 7, 64, 200):
        how = settings(name, batch)
        want = in_batches(problem, how, deferred) if share < 1 else serial(problem, how)
        for threads in (1, 2, 4, 8):
            found = run(cyclades, problem, how, threads, deferred=deferred)[1]
            assert np.array_equal(found, want), (batch, threads)


def test_momentum_of_batches_does_not_depend_on_workers():
    problem, how = documents(), settings(momentum=0.5)
    for share in (1.0, 0.05):
        deferred = hubs(problem.kernel.data.edges, len(problem.params), share)
        one, four = (
            run(cyclades, problem, how, p, deferred=deferred)[1] for p in (1, 4)
        )
        assert np.array_equal(one, four)


@pytest.mark.parametrize("name", PROBLEMS)
def test_rows_apart_have_the_momentum_of_others(name):
    problem, how = PROBLEMS[name](), settings(name, batch=1, momentum=0.5)
    everything = np.ones(len(problem.params), bool)  # of a batch of one: serial
    found = run(cyclades, problem, how, threads=2, deferred=everything)[1]
    assert np.array_equal(found, serial(problem, how))


def test_losses_and_changes_are_those_of_all_workers():
    problem, how = ratings(), settings("ratings", batch=8)
    nothing = np.zeros(len(problem.params), bool)
    one = run(hogwild, problem, how)[0]
    three = run(cyclades, problem, how, threads=3, deferred=nothing)[0]
    for here, there in zip(one, three, strict=True):
        assert here.loss == pytest.approx(there.loss, rel=1e-9)
        assert here.measures["rows_changed"] == there.measures["rows_changed"] > 0
    # a deferred row is changed once a batch, however many of its edges have it
    problem, how = tally(edges=50), How(lambda epoch: 1.0, 8)
    rows = problem.kernel.data.edges.rows.reshape(50, -1)
    due = sum(len(np.unique(rows[first : first + 8])) for first in range(0, 50, 8))
    everything = np.ones(len(problem.params), bool)
    steps = run(cyclades, problem, how, threads=2, deferred=everything)[0]
    assert [step.number for step in steps] == [7, 14, 21]  # minibatches
    for step in steps:
        assert step.measures["rows_changed"] == due


def test_turns_and_counts_begin_anew_in_each_epoch(monkeypatch):
    made, seen, problem, new = [], [], tally(edges=50), memory.state
    monkeypatch.setattr(memory, "state", lambda *a: made.append(new(*a)) or made[-1])

    def rate(epoch):
        (state,) = made
        seen.append((epoch, int(state.sync.turn[0]), int(state.hits.sum())))
        return 1.0

    def program(comm):
        how = How(rate, 8, counting=True)
        for _ in begin(hogwild, problem, how, comm, EPOCHS, policy=round_robin):
            assert made[0].sync.turn[0] == 50

    sim.run(program, 1)
    assert set(seen) == {(epoch, 0, 0) for epoch in range(1, EPOCHS + 1)}


@pytest.mark.parametrize("policy", [atomic, locked, whole, round_robin])
def test_who_waits_loses_no_update(policy):
    problem = tally(edges=20_000)
    how = How(lambda epoch: 1.0, 8, counting=True)
    steps, table = run(hogwild, problem, how, threads=4, policy=policy)
    due = np.bincount(problem.kernel.data.edges.rows) * EPOCHS
    assert table.tolist() == due.tolist()
    for step in steps:
        assert step.measures == {"rows_changed": 80_000, "rows_lost": 0}


def test_what_hogwild_loses_is_counted():
    problem = tally(edges=20_000)
    how = How(lambda epoch: 1.0, 8, counting=True)
    steps, table = run(hogwild, problem, how, threads=4, policy=lock_free)
    for step in steps:
        assert step.measures["rows_changed"] == 80_000
        assert 0 <= step.measures["rows_lost"] < 80_000
    # a change and its count are lost one by one: nearly as many of each
    assert table.sum() <= 80_000 * EPOCHS


def test_a_count_says_what_was_lost():
    problem, how = tally(edges=50), How(lambda epoch: 1.0, 8, counting=True)
    # a policy that loses every change of row 3
    steps, table = run(hogwild, problem, how, policy=forgetful)
    degrees = np.bincount(problem.kernel.data.edges.rows)
    assert table[3] == 0 < degrees[3]
    assert steps[0].measures["rows_lost"] == degrees[3]


def test_averages_are_of_runs_on_a_share_of_the_blocks():
    problem, how = documents(), settings(batch=16)
    found = run(average, problem, how, threads=3)[1]
    tables = [serial(problem, how, slice(worker, None, 3)) for worker in range(3)]
    mean = np.mean(tables, axis=0, dtype=np.float64).astype(np.float32)
    assert np.array_equal(found, mean)


def test_an_epoch_visits_every_block_once_and_the_short_one_last():
    how = settings(batch=16)
    one, same, other = (visits(how, epoch, 200) for epoch in (1, 1, 2))
    assert sorted(one.visits) == list(range(13)) and one.visits[-1] == 12
    assert one.steps == 200
    assert one.visits.tolist() == same.visits.tolist() != other.visits.tolist()
    elsewhere = visits(how._replace(seed=1), 1, 200)
    assert one.visits.tolist() != elsewhere.visits.tolist()


def test_what_cannot_be_shared_out_is_said():
    problem = documents(examples=5)
    with pytest.raises(BadInput, match="at most 5 workers for 5 examples, got 6"):
        run(hogwild, problem, settings(batch=2), threads=6, policy=lock_free)
    with pytest.raises(BadInput, match="batch of 1 to 5 examples, got 6"):
        run(hogwild, problem, settings(batch=6), policy=lock_free)

    def two_hosts(comm):
        list(begin(hogwild, documents(), settings(), comm, 1))

    with pytest.raises(BadInput, match="all ranks on one host.*on 2.*servers"):
        sim.run(two_hosts, 2, sim.Uniform(host=1))


def test_strategies_of_a_model_refuse_a_fused_kernel_in_one_line():
    problem = documents()._replace(kernel=Kernel(None, fused=lambda *_: 0.0))
    for name in ("average", "cyclades", "delayed"):
        with pytest.raises(BadInput, match="kernel.model .*; pass .*hogwild"):
            strategy(name, problem)
    assert strategy("hogwild", problem) is hogwild
    with pytest.raises(BadInput, match="no locks, no momentum"):
        run(hogwild, problem, settings(momentum=0.5))
    with pytest.raises(BadInput, match="with model .*; pass --strategy=.*hogwild"):
        strategy("mesh", problem)
