"""Strategies in shared memory: bit-identical with one worker; tests of several."""

import inspect
from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.sim.delays import delay_distribution
from dml.strategies import strategy
from dml.strategies.shared.average import average
from dml.strategies.shared.cyclades import cyclades
from dml.strategies.shared.delayed import delayed
from dml.strategies.shared.hogwild import hogwild
from dml.strategies.shared.hogwild_private import hogwild_private
from dml.types import BadInput, Kernel
from dml.wire.memory import atomic, locked, round_robin
from dml.wire.memory import global_lock as whole
from dml.wire.memory import hogwild as lock_free
from dml.wire.memory import state as memory
from dml.wire.memory.conflicts import hubs
from tests.strategies.shared import forgetful, small
from tests.strategies.shared.small import (
    RATES,
    How,
    begin,
    documents,
    visits,
)
from tests.strategies.shared.tally import tally

POLICIES = [lock_free, atomic, locked, whole, round_robin]
EPOCHS = 3
ratings = partial(small.ratings, dtype="float64")
PROBLEMS = {"documents": documents, "ratings": ratings}


def settings(name="documents", batch=16, **more):
    return How(lambda epoch: RATES[name] * 0.8 ** (epoch - 1), batch, **more)


def run(way, problem, how, threads=1, **more):
    """Train on one rank; return the steps, and the table at the end."""

    def program(comm):
        steps = list(begin(way, problem, how, comm, EPOCHS, threads, **more))
        return steps, steps[-1].params()

    return sim.run(program, 1)[0]


def blocks(problem, how, epoch, share=slice(None)):
    """Return the edges of each block of an epoch."""
    for block in visits(how, epoch, problem.examples).visits[share]:
        first = block * how.batch
        yield range(first, min(first + how.batch, problem.examples))


def gradients(problem, data, table, e, t):
    """Return the rows of an edge, none where it moves none, and their gradients."""
    rows = data.edges.rows[data.edges.starts[e] : data.edges.starts[e + 1]]
    grads = np.empty((len(rows), *table.shape[1:]), table.dtype)
    _, moves = problem.kernel.model.gradient(table, data, e, t, grads)
    return (rows, grads) if moves else (rows[:0], grads[:0])


def oracle(problem, how, deferred=None, share=slice(None)):
    """Descend in plain Python; deferred rows change at the end of a block."""
    model = problem.kernel.model
    table, kind = problem.params.copy(), problem.params.dtype.type
    speed = np.zeros_like(table)
    deferred = np.zeros(len(table), bool) if deferred is None else deferred
    for epoch in range(1, EPOCHS + 1):
        rate, steps = kind(how.rate(epoch)), 0
        data = model.with_rate(problem.kernel.data, how.rate(epoch))

        def change(row, grad, rate=rate):
            speed[row] = grad + kind(how.momentum) * speed[row]
            moved = speed[[row]]
            model.move(table, row, moved, 0, rate)
            table[row] += moved[0]

        for block in blocks(problem, how, epoch, share):
            sums = {}
            for e in block:
                t = steps + (0 if deferred.all() else e - block.start)
                for row, grad in zip(
                    *gradients(problem, data, table, e, t), strict=True
                ):
                    if deferred[row]:
                        sums[row] = sums.get(row, 0) + grad
                    else:
                        change(row, grad)
            for row, total in sums.items():
                change(row, total)
            steps += len(block)
        for one in (table, speed):
            model.settle(one, data, steps)
    return table


@pytest.mark.parametrize(
    "name, dtype, batch",
    [
        ("documents", "float32", 16),
        ("ratings", "float64", 1),
        ("ratings", "float32", 16),
    ],
)
@pytest.mark.parametrize("momentum", (0.0, 0.5))
def test_one_worker_has_the_bits_of_serial_by_every_way(name, dtype, batch, momentum):
    problem = PROBLEMS[name](dtype=dtype)
    how, start = settings(name, batch, momentum=momentum), problem.params.copy()
    want = oracle(problem, how)
    policies = POLICIES[: 2 if batch > 1 else None]  # locks depend on no type
    ways = [(hogwild, {"policy": policy}) for policy in policies]
    ways += [(average, {}), (cyclades, {"deferred": np.zeros(len(want), bool)})]
    hot = np.ones(len(want), bool)
    ways += [(hogwild_private, {"hot": hot, "period": 1})]
    ways += [(hogwild_private, {"hot": ~hot, "period": 5})]
    ways += [(delayed, {"distribution": delay_distribution("constant:0.9")})]
    assert want.dtype == dtype and not np.array_equal(want, start)
    losses = []
    for way, own in ways:
        steps, found = run(way, problem, how, **own)
        assert np.array_equal(found, want), (way, own)
        losses.append([step.loss for step in steps])
    for found in losses:
        assert found == pytest.approx(losses[0], rel=1e-9)
    assert np.array_equal(problem.params, start)  # it is the caller's


def private_oracle(problem, how, hot, period):
    """Descend in plain Python; changes of hot rows are added after every period."""
    kernel, scalar = problem.kernel, problem.params.dtype.type
    model, table = kernel.model, problem.params.copy()
    for epoch in range(1, EPOCHS + 1):
        rate = scalar(how.rate(epoch))
        data, sums = model.with_rate(kernel.data, how.rate(epoch)), {}
        visited = [e for block in blocks(problem, how, epoch) for e in block]
        for t, e in enumerate(visited):
            rows, grads = gradients(problem, data, table, e, t)
            for s, row in enumerate(rows):
                model.move(table, row, grads, s, rate)
                if hot[row]:
                    sums[row] = sums.get(row, scalar(0)) + grads[s]
                else:
                    table[row] += grads[s]
            if (t + 1) % period == 0 or t + 1 == len(visited):
                for row, total in sums.items():
                    table[row] += total
                sums.clear()
        model.settle(table, data, len(visited))
    return table


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("share, period", [(0.0, 7), (0.05, 7), (0.02, 1000)])
def test_changes_of_hot_rows_are_added_after_a_period(name, share, period):
    problem, how = PROBLEMS[name](), settings(name)
    hot = hubs(problem.kernel.data.edges, len(problem.params), share)
    want = private_oracle(problem, how, hot, period)
    found = run(hogwild_private, problem, how, hot=hot, period=period)[1]
    assert np.array_equal(found, want)
    assert not np.array_equal(want, oracle(problem, how)) or not hot.any()


def test_two_workers_with_private_rows_learn_however_they_alternate():
    problem, how = documents(), settings(batch=8)
    hot = hubs(problem.kernel.data.edges, len(problem.params), 0.05)
    assert hot.any() and not hot.all()

    def objective(threads):
        table = run(hogwild_private, problem, how, threads, hot=hot, period=4)[1]
        return problem.kernel.model.objective(table, problem.kernel.data)

    start = problem.kernel.model.objective(problem.params, problem.kernel.data)
    assert objective(2) < 0.3 * start  # one worker ends at 0.19 of it


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("share", (1.0, 0.05, 0.0))
def test_batches_have_the_bits_of_one_worker_on_any_number(name, share):
    problem = PROBLEMS[name]()
    deferred = hubs(problem.kernel.data.edges, len(problem.params), share)
    assert deferred.any() == (share < 1) and deferred.all() == (share == 0)
    for batch, momentum in ((1, 0.5), (7, 0.0), (200, 0.5)):
        how = settings(name, batch, momentum=momentum)
        want = oracle(problem, how, deferred)
        for threads in (1, 3, 8):
            found = run(cyclades, problem, how, threads, deferred=deferred)[1]
            assert np.array_equal(found, want), (batch, threads)


def test_losses_and_changes_are_those_of_all_workers():
    problem, how = ratings(), settings("ratings", batch=8)
    one = run(hogwild, problem, how)[0]
    three = run(cyclades, problem, how, 3, deferred=np.zeros(len(problem.params), bool))
    for here, there in zip(one, three[0], strict=True):
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
    edges = 2_000 if policy is round_robin else 20_000  # a turn is slow
    problem = tally(edges=edges)
    how = How(lambda epoch: 1.0, 8, counting=True)
    steps, table = run(hogwild, problem, how, threads=4, policy=policy)
    due = np.bincount(problem.kernel.data.edges.rows) * EPOCHS
    assert table.tolist() == due.tolist()
    for step in steps:
        assert step.measures == {"rows_changed": 4 * edges, "rows_lost": 0}


def test_lost_updates_are_counted():
    problem, how = tally(edges=50), How(lambda epoch: 1.0, 8, counting=True)
    # a policy that loses every change of row 3
    steps, table = run(hogwild, problem, how, policy=forgetful)
    degrees = np.bincount(problem.kernel.data.edges.rows)
    assert table[3] == 0 < degrees[3]
    assert steps[0].measures["rows_lost"] == degrees[3]


def test_averages_are_of_runs_on_a_share_of_the_blocks():
    problem, how = documents(), settings(batch=16)
    found = run(average, problem, how, threads=3)[1]
    tables = [oracle(problem, how, share=slice(me, None, 3)) for me in range(3)]
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


def test_what_cannot_be_divided_is_refused():
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
    assert inspect.unwrap(strategy("hogwild", problem)) is inspect.unwrap(hogwild)
    with pytest.raises(BadInput, match="no locks, no momentum"):
        run(hogwild, problem, settings(momentum=0.5))
    with pytest.raises(BadInput, match="with model .*; pass --strategy=.*hogwild"):
        strategy("mesh", problem)
