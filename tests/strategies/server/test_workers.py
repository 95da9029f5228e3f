"""What becomes of a worker's gradients: none is lost, refused ones weigh nothing."""

import numpy as np
import optax
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.strategies.server.report import Report
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup, server
from dml.strategies.server.workers import (
    Counts,
    Part,
    WorkerOptions,
    filtered,
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
    EXAMPLES,
    ROWS,
    Descent,
    alone,
    batches,
    problem,
    ran,
)


def steps_and_logs(size, rule, worker_options, seconds):
    """Train; return the numbers of each worker's steps, and the server's log."""
    who = roles(size)

    def program(comm):
        comm, report = Delayed(Metered(comm), seconds(comm.rank)), Report()
        timer = Timer(comm.Wtime)
        setup = Setup(who, rule(who.workers), worker_options=worker_options)
        how = {"comm": comm, "timer": timer, "setup": setup, "report": report}
        steps = server(problem(), batches(12), Descent, **how)
        numbers = [step.number for step in steps]
        if comm.rank < who.workers:
            assert len(numbers) + report.counts.skipped_clocks == 12
        return numbers, report.log

    found = sim.run(program, size)
    return [steps for steps, _ in found[: who.workers]], found[-1][1]


@pytest.mark.parametrize("slow", [4.5, 7.5, 20.0])
@pytest.mark.parametrize("pushes", [1, 2, 3])
def test_who_is_left_behind_still_pushes_all_that_it_has_computed(pushes, slow):
    def pace(rank):
        while True:
            yield slow if rank == 2 else 1.0

    def backup(workers):
        return consistency("backup", Choice(backup=1), workers)

    steps, log = steps_and_logs(4, backup, WorkerOptions(pushes=pushes), pace)
    last = [one for one in log if one.worker == 2]
    assert len(steps[0]) == len(steps[1]) == 12 > len(steps[2]) > 0
    if pushes == 1:
        assert len(last) == len(steps[2])
    # each step is followed by a push, before a clock is computed after a jump
    for number, after in zip(steps[2], [*steps[2][1:], 99], strict=True):
        jumps = after > number + 1
        ends = [one.clock for one in last if number - 1 <= one.clock < after]
        assert ends or not jumps
    assert all(one.late for one in last)


def test_an_example_alone_has_its_gradient_whatever_the_microbatches():
    rows = np.array([5, 2, 9])  # rows need not rise

    def gradient(table, numbers):
        return 1.0, Rows(rows, rows[:, None] * np.ones((1, 2), np.float32))

    def program(comm, examples=1):
        task = Problem(np.zeros((10, 2)), 1, gradient, lambda table: {})
        client = Client(Metered(comm), partition(10, 1), 2, [0])
        replica = Replica(client, task.params, consistency("bsp", Choice(), 1), None)
        numbers = np.arange(examples)
        part = Part(0, numbers, numbers, rows, 0.5)
        return part_gradient(task, replica, part, WorkerOptions(microbatches=4), None)

    loss, grads = sim.run(program, 1)[0]
    assert loss == 1.0
    pieces, _ = sim.run(lambda comm: program(comm, examples=3), 1)[0]
    assert pieces == 1.0  # a mean
    assert grads.tolist() == [[2.5, 2.5], [1, 1], [4.5, 4.5]]


@pytest.mark.parametrize("bad", [[np.inf, -np.inf], [np.nan, 1], [np.inf, 1]])
@pytest.mark.parametrize("rows", [np.array([3, 4]), slice(3, 5)])
def test_a_refused_gradient_has_no_rows_and_no_weight(bad, rows):
    def program(comm):
        client = Client(Metered(comm), partition(10, 1), 1, [0])
        rule = consistency("bsp", Choice(), 1)
        replica = Replica(client, np.zeros((10, 1), np.float32), rule, None)
        part, counts = Part(0, np.arange(2), np.arange(2), rows, 0.5), Counts()
        grads = np.array(bad, np.float32)[:, None]
        none = filtered(
            replica, part, grads, WorkerOptions(on_nonfinite="skip"), counts, 1.0
        )
        huge = np.full((2, 1), 3e38, np.float32)  # finite, but its sum is not
        return (
            none,
            counts.nonfinite,
            filtered(replica, part, huge, WorkerOptions(), counts, 1.0),
        )

    (none, grads, weight, *_), count, (at, _, whole, *_) = sim.run(program, 1)[0]
    assert len(range(10)[none] if isinstance(none, slice) else none) == len(grads) == 0
    assert (weight, count) == (0.0, 1)
    assert (at is rows, whole) == (True, 0.5)


def test_a_copy_moves_by_an_optimizer_that_makes_another_array():
    def program(comm):
        table = np.ones((ROWS, 1), np.float32)
        client = Client(Metered(comm), partition(ROWS, 1), 1, [0])
        own = flat(optax.sgd(0.5), table)
        rule = consistency("ssp", Choice(staleness=2), 1)
        replica, every = Replica(client, table, rule, own), slice(0, ROWS)
        for _ in range(2):
            replica.add_gradient(every, np.ones((ROWS, 1), np.float32), 1.0)
        replica.table[:] = 7  # what a server says
        replica.add_own(every, applied=0)
        replica.add_gradient(every, np.ones((ROWS, 1), np.float32), 1.0)
        return replica.table

    assert (sim.run(program, 1)[0] == 7 - 3 * 0.5).all()


def test_an_own_gradient_stays_till_all_servers_of_its_rows_have_it():
    def program(comm):
        table = np.zeros((4, 1), np.float32)
        client = Client(Metered(comm), partition(4, 2), 1, [0, 0])
        rule = consistency("ssp", Choice(staleness=2), 1)
        replica = Replica(client, table, rule, Descent(table))
        for push, rows in enumerate([np.array([0, 3]), np.array([1])]):
            replica.pushes = push
            replica.add_gradient(rows, np.ones((len(rows), 1), np.float32), 1.0)
        left = []
        for number, applied in ((0, 1), (1, 1), (0, 2)):
            replica.prune(number, applied)
            left.append([each.push for each in replica.owned])
        return left

    assert sim.run(program, 1)[0] == [[1, 2], [2], []]


@pytest.mark.parametrize("name", ["bsp", "ssp", "essp"])
@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_a_worker_without_examples_waits_like_the_others(name, dense):
    """Minibatches of one example: one worker of three has any, and takes its time."""

    def few(clocks, seed=1):
        return [np.array([number % EXAMPLES]) for number in range(clocks)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.strategies.server.small.batches", few)
        found = ran(
            4,
            name,
            choice=Choice(staleness=2),
            dense=dense,
            clocks=12,
            delays="constant:1",
        )
        if name == "bsp":
            wanted = alone(3, dense, clocks=12)
            assert found.table.tobytes() == wanted.tobytes()
        ahead = 2 if name != "bsp" else 0
        ended = np.zeros(3)
        for row in found.log[np.argsort(found.log[:, 0], kind="stable")]:
            ended[int(row[1])] = row[2] + 1
            assert ended.max() - ended.min() <= ahead + 1


def test_a_filter_of_keys_sees_the_gradient_of_the_workers_own_part():
    seen = []

    def sift(values, grads):
        seen.append((values.tolist(), grads.tolist()))
        return np.array([False, True])

    def program(comm):
        client = Client(Metered(comm), partition(10, 1), 1, [0])
        rule = consistency("bsp", Choice(), 1)
        table = np.arange(10, dtype=np.float32)[:, None]
        replica = Replica(client, table, rule, None)
        part, counts = Part(0, np.arange(2), None, np.array([3, 4]), 0.25), Counts()
        grads = np.array([[1], [2]], np.float32)
        return filtered(
            replica, part, grads, WorkerOptions(row_filter=sift), counts, 1.0
        ), counts

    one, counts = sim.run(program, 1)[0]
    assert seen == [([[3], [4]], [[4], [8]])]  # not times its weight
    assert (one.rows.tolist(), one.grads.tolist()) == ([4], [[2]])
    assert (counts.offered, counts.sifted) == (2, 1)


def test_what_is_pushed_together_weighs_together():
    shares = []

    class Noting(Descent):
        def update(self, at, grads, share=1.0):
            shares.append(share)
            super().update(at, grads, share)

    found = ran(
        3, "async", clocks=5, worker_options=WorkerOptions(pushes=2), make=Noting
    )
    # two workers: 15 and 14 of 29 examples, of two clocks, the fifth alone
    ours = sorted(round(share * 29) for share in shares)
    assert ours.count(30) == ours.count(28) == 2
    assert ours.count(15) >= 1 and ours.count(14) >= 1
    assert found.summary["gradients"] == 6


@pytest.mark.parametrize("pieces", [1, 4])
def test_a_colocated_rank_serves_between_its_microbatches(pieces):
    """Rank 0 takes 8 seconds for its part; rank 1 wants rows of it meanwhile."""

    def program(comm):
        task = problem(dense=True)

        def slow(values, batch):
            comm.platform.compute((0.01 if comm.rank else 8) / pieces)
            return task.gradient(values, batch)

        metered, who = Metered(comm), roles(2, colocated=True)
        rule, report = consistency("async", Choice(), 2), Report()
        worker_options = WorkerOptions(microbatches=pieces)
        setup = Setup(who, rule, worker_options=worker_options)
        timer, waits = Timer(comm.Wtime), []
        mine = task._replace(gradient=slow)
        how = {"comm": metered, "timer": timer, "setup": setup, "report": report}
        steps = server(mine, batches(2), Descent, **how)
        for step in steps:
            waits.append(step.seconds["wait"])
        return waits

    waits = sim.run(program, 2)[1]
    assert max(waits) == pytest.approx(8 / pieces, abs=0.05)
