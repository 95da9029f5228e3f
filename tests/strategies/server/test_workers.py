"""Gradients of a worker: microbatches, filters, aggregation, waiting times."""

import numpy as np
import optax
import pytest

from dml import sim
from dml.sim import maxplus
from dml.sim.delays import delay_distribution, seconds
from dml.strategies.server.roles import roles
from dml.strategies.server.workers import (
    Counts,
    MinibatchPart,
    WorkerOptions,
    filter_gradient,
    part_gradient,
)
from dml.types import Problem, Rows
from dml.update.flat import flat
from dml.wire.comm import Delayed, Metered
from dml.wire.plans.partition import partition
from dml.wire.server.client import Client
from dml.wire.server.consistency import Choice, consistency
from dml.wire.server.replica import Replica
from tests.strategies.server.small import (
    CHOICE,
    DELAYS,
    EXAMPLES,
    ROWS,
    WIDTH,
    Descent,
    alone,
    batches,
    problem,
    ran,
    serve,
)


@pytest.mark.parametrize("slow", [4.5, 7.5, 20.0])
@pytest.mark.parametrize("pushes", [1, 2, 3])
def test_who_is_left_behind_still_pushes_all_that_it_has_computed(pushes, slow):
    who, rule = roles(4), consistency("backup", Choice(backup=1), 3)

    def program(comm):
        pace = iter(lambda: slow if comm.rank == 2 else 1.0, None)
        comm, options = Delayed(Metered(comm), pace), WorkerOptions(push_period=pushes)
        run = serve(
            comm, problem(), batches(12), Descent, who, rule, worker_options=options
        )
        steps, report, _ = run
        if comm.rank < who.workers:
            assert len(steps) + report.counts.skipped_clocks == 12
        return [step.number for step in steps], report.log

    (first, _), (second, _), (behind, _), (_, log) = sim.run(program, 4)
    last = [one for one in log if one.worker == 2]
    assert len(first) == len(second) == 12 > len(behind) > 0
    if pushes == 1:
        assert len(last) == len(behind)
    # each step is followed by a push, before a clock is computed after a jump
    for number, after in zip(behind, [*behind[1:], 99], strict=True):
        jumps = after > number + 1
        ends = [one.clock for one in last if number - 1 <= one.clock < after]
        assert ends or not jumps
    assert all(one.late for one in last)


def alone_with(call, values, name="bsp", own=None):
    """Call with a worker's copy of a table; the server is not called."""

    def program(comm):
        client = Client(Metered(comm), partition(len(values), 1), values.shape[1], [0])
        rule = consistency(name, Choice(staleness=2), 1)
        return call(Replica(client, values, rule, own))

    return sim.run(program, 1)[0]


@pytest.mark.parametrize("examples", (1, 3))
def test_a_gradient_of_microbatches_is_a_mean_however_few_examples(examples):
    rows = np.array([5, 2, 9])  # rows need not rise

    def gradient(table, numbers):
        return 1.0, Rows(rows, rows[:, None] * np.ones((1, 2), np.float32))

    task = Problem(np.zeros((10, 2)), 1, gradient, lambda table: {})
    numbers, options = np.arange(examples), WorkerOptions(microbatches=4)
    part = MinibatchPart(0, numbers, numbers, rows, 0.5)
    loss, grads = alone_with(
        lambda replica: part_gradient(task, replica, part, options, None), task.params
    )
    assert loss == 1.0
    np.testing.assert_allclose(grads, [[2.5, 2.5], [1, 1], [4.5, 4.5]], rtol=1e-6)


@pytest.mark.parametrize("bad", [[np.inf, -np.inf], [np.nan, 1], [np.inf, 1]])
@pytest.mark.parametrize("rows", [np.array([3, 4]), slice(3, 5)])
def test_a_refused_gradient_has_no_rows_and_no_weight(bad, rows):
    part, counts = MinibatchPart(0, np.arange(2), np.arange(2), rows, 0.5), Counts()

    def kept(replica, numbers, **options):
        grads = np.array(numbers, np.float32)[:, None]
        return filter_gradient(
            replica, part, grads, WorkerOptions(**options), counts, 1.0
        )

    def program(replica):
        huge = kept(replica, [3e38, 3e38])  # finite, but its sum is not
        pushed = kept(replica, bad, on_nonfinite="push")
        return kept(replica, bad, on_nonfinite="skip"), huge, pushed

    table = np.zeros((10, 1), np.float32)
    refused, huge, pushed = alone_with(program, table)
    assert np.array_equal(pushed.grads[:, 0], bad, equal_nan=True)
    assert len(np.arange(10)[refused.rows]) == len(refused.grads) == 0
    assert (refused.weight, counts.nonfinite) == (0.0, 1)
    assert (huge.rows is rows, huge.weight) == (True, 0.5)
    with pytest.raises(FloatingPointError, match="rank 0, clock 0: expected a finite"):
        alone_with(lambda replica: kept(replica, bad), table)


def test_a_filter_of_keys_receives_the_gradient_of_the_workers_own_part():
    seen, counts = [], Counts()

    def sift(values, grads):
        seen.append((values.tolist(), grads.tolist()))
        return np.array([False, True])

    part = MinibatchPart(0, np.arange(2), None, np.array([3, 4]), 0.25)
    grads, options = np.array([[1], [2]], np.float32), WorkerOptions(row_filter=sift)
    one = alone_with(
        lambda replica: filter_gradient(replica, part, grads, options, counts, 1.0),
        np.arange(10, dtype=np.float32)[:, None],
    )
    assert seen == [([[3], [4]], [[4], [8]])]  # not times its weight
    assert (one.rows.tolist(), one.grads.tolist()) == ([4], [[2]])
    assert (counts.offered, counts.filtered) == (2, 1)


def test_a_copy_moves_by_an_optimizer_that_makes_another_array():
    start, every = np.ones((ROWS, 1), np.float32), slice(0, ROWS)

    def program(replica):
        for _ in range(2):
            replica.add_gradient(every, start, 1.0)
        replica.table[:] = 7  # what a server says
        replica.add_own_changes(every, applied=0)
        replica.add_gradient(every, start, 1.0)
        return replica.table

    own = flat(optax.sgd(0.5), start)
    assert (alone_with(program, start.copy(), "ssp", own) == 7 - 3 * 0.5).all()


@pytest.mark.parametrize("name", ["bsp", "ssp", "essp"])
@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_a_worker_without_examples_waits_like_the_others(name, dense):
    """Minibatches of one example, which one worker of three computes."""
    few = [np.array([number % EXAMPLES]) for number in range(12)]
    more = {"dense": dense, "clocks": few, "delays": "constant:1"}
    found = ran(4, name, choice=Choice(staleness=2), **more)
    if name == "bsp":
        assert found.table.tobytes() == alone(3, dense, few).tobytes()
    ahead, ended = 2 if name != "bsp" else 0, np.zeros(3)
    for row in found.log[np.argsort(found.log[:, 0], kind="stable")]:
        ended[int(row[1])] = row[2] + 1
        assert ended.max() - ended.min() <= ahead + 1


def test_what_is_pushed_together_weighs_together():
    shares = []

    class Noting(Descent):
        def update(self, at, grads, share=1.0):
            shares.append(share)
            super().update(at, grads, share)

    options = {"worker_options": WorkerOptions(push_period=2)}
    found = ran(3, "async", clocks=5, make=Noting, **options)
    # two workers: 15 and 14 of 29 examples, of two clocks, the fifth alone
    ours = sorted(round(share * 29) for share in shares)
    assert ours.count(30) == ours.count(28) == 2
    assert ours.count(15) >= 1 and ours.count(14) >= 1
    assert found.summary["gradients"] == 6


@pytest.mark.parametrize("pieces", [1, 4])
def test_a_colocated_rank_serves_between_its_microbatches(pieces):
    """Rank 0 computes for 8 seconds; meanwhile rank 1 pulls rows from it."""
    task, who, rule = (
        problem(dense=True),
        roles(2, 2, True),
        consistency("async", CHOICE, 2),
    )

    def program(comm):
        def slow(values, batch):
            comm.platform.compute((0.01 if comm.rank else 8) / pieces)
            return task.gradient(values, batch)

        mine, options = task._replace(gradient=slow), WorkerOptions(microbatches=pieces)
        arguments = mine, batches(2), Descent, who, rule
        steps, *_ = serve(Metered(comm), *arguments, worker_options=options)
        return [step.seconds["wait"] for step in steps]

    waits = sim.run(program, 2)[1]
    assert max(waits) == pytest.approx(8 / pieces, abs=0.05)


def test_filtered_rows_are_not_sent():
    def some(values, grads):
        return np.arange(len(values)) % 3 > 0

    plain, sifted = (
        ran(6, servers=2, worker_options=WorkerOptions(row_filter=each)).summary
        for each in (None, some)
    )
    saved = plain["rows_pushed"] - sifted["rows_pushed"]
    assert saved == sifted["filtered"] > 0.25 * sifted["offered"]
    assert plain["filtered"] == 0
    assert plain["keys_sent"] == sifted["keys_sent"]
    bits = 2 * 12 * 4 * 2  # words: a mask of at most 64 keys from worker to server
    assert sifted["words_sent"] == plain["words_sent"] - saved * WIDTH + bits


def test_waiting_falls_as_the_bound_grows():
    """The share of time that workers wait, with steps of 1 + Exp(1) seconds."""
    draws_TxP, clocks = (
        seconds(delay_distribution(DELAYS), 3, 300, 8),
        [np.arange(EXAMPLES)] * 300,
    )
    for staleness, most in ((0, 1), (2, 0.4), (8, 0.1)):
        starts_TxP = maxplus.ssp(draws_TxP, staleness)
        gap = (starts_TxP[1:] - (starts_TxP + draws_TxP)[:-1]).sum()
        own = {"clocks": clocks, "choice": Choice(staleness=staleness)}
        share = ran(9, "ssp", delays=DELAYS, **own).summary["idle_share"]
        assert share < most
        assert share == pytest.approx(gap / (gap + draws_TxP.sum()), abs=0.01)
