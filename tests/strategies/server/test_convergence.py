"""Every consistency reaches serial's objective at one rate, with stragglers."""

import math
from functools import cache

import numpy as np
import pytest

from dml import sim
from dml.data.minibatches import minibatches
from dml.data.sparse import svmlight
from dml.metrics.timer import Timer
from dml.models.sparse import factors, logistic
from dml.sim import maxplus
from dml.sim.delays import delay_distribution, drawing, seconds
from dml.strategies.serial import serial
from dml.strategies.server.report import Report, collected
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup, server
from dml.strategies.server.workers import WorkerOptions
from dml.types import Batch
from dml.update.table import table
from dml.wire.comm import Delayed, Metered
from dml.wire.plans.partition import partition
from dml.wire.server.consistency import CONSISTENCIES, Choice, consistency
from tests.strategies.small import alone

SIZE, SERVERS, BATCH, CLOCKS, RATE, L1 = 6, 2, 64, 300, 2.0, 5e-4
CHOICE = Choice(staleness=3, softsync=2, backup=1)
LARGE = 3e-2  # a weight of the norm that keeps most weights at 0
WITHIN = 1.02  # of serial's objective: the gate


@cache
def task(l1=L1):
    """Rows of which two in three features tell nothing; made once, shared by ranks."""
    every = svmlight.generate(600, 60, 8, seed=0)
    some = Batch(every.inputs[:500], every.targets[:500])
    return logistic.problem(some, Batch(every.inputs[500:], every.targets[500:]), l1)


def batches(problem, clocks=CLOCKS):
    found = minibatches(problem.examples, BATCH, seed=1)
    return [next(found) for _ in range(clocks)]


def trained(
    problem, name, make, *, worker_options=None, size=SIZE, straggle=None, **more
):
    """Train on virtual ranks with stragglers; return what rank 0 collects."""

    def program(comm):
        comm, who = Metered(comm), roles(size, SERVERS, more.get("colocated", False))
        rule, report = consistency(name, CHOICE, who.workers), Report()
        setup = Setup(who, rule, worker_options=worker_options or WorkerOptions())
        late = delay_distribution(straggle or "shifted_exponential:1,1")
        comm = Delayed(comm, drawing(late, 5, comm.rank))
        timer = Timer(comm.Wtime)
        how = {"comm": comm, "timer": timer, "setup": setup, "report": report}
        for _ in server(problem, batches(problem), make, **how):
            pass
        rows, width = problem.params.shape
        split = partition(rows, SERVERS, problem.frequency)
        return collected(comm, who, split, width, report)

    return sim.run(program, size)[0]


def descent(values, l1=L1):
    return table("sgd", values, RATE, l1=l1)


@cache
def reference():
    problem, how = task(), {"comm": alone(), "timer": Timer()}
    steps = serial(problem, batches(problem), descent, accumulate=SIZE - SERVERS, **how)
    *_, last = steps
    return problem.evaluate(last.params())["objective"]


@pytest.mark.parametrize("name", CONSISTENCIES)
def test_logistic_regression_ends_where_serial_does(name):
    assert reference() < 0.9 * math.log(2)  # that of weights of zero
    found = trained(task(), name, descent)
    assert task().evaluate(found.table)["objective"] <= WITHIN * reference()


def test_the_kkt_filter_saves_pushes_at_an_equal_objective():
    problem = task(LARGE)

    def make(values):
        return table("sgd", values, RATE / 4, l1=LARGE)

    def sift(values, grads):
        return logistic.kkt(values, grads, LARGE)

    plain = trained(problem, "bsp", make)
    sifted = trained(
        problem, "bsp", make, worker_options=WorkerOptions(row_filter=sift)
    )
    ends = [problem.evaluate(found.table)["objective"] for found in (plain, sifted)]
    assert ends[1] <= WITHIN * ends[0]
    assert plain.summary["sifted"] == 0
    assert sifted.summary["sifted"] > 0.3 * sifted.summary["offered"]
    saved = plain.summary["rows_pushed"] - sifted.summary["rows_pushed"]
    assert saved == sifted.summary["sifted"]
    assert plain.summary["keys_sent"] == sifted.summary["keys_sent"]
    bits = 2 * CLOCKS * (SIZE - SERVERS) * SERVERS  # words: of at most 64 keys each
    assert sifted.summary["words_sent"] == plain.summary["words_sent"] - saved + bits


def test_a_gradient_that_is_not_finite_is_refused_and_counted():
    problem, calls = task(), []

    def poisoned(values, batch):
        loss, grads = problem.gradient(values, batch)
        calls.append(len(calls))
        if len(calls) % 50 == 7:
            grads = grads._replace(values=grads.values * np.float32(np.nan))
        return loss, grads

    sick = problem._replace(gradient=poisoned)
    found = trained(
        sick, "async", descent, worker_options=WorkerOptions(on_nonfinite="skip")
    )
    assert found.summary["nonfinite"] == len(calls) // 50 == CLOCKS * 4 // 50
    assert problem.evaluate(found.table)["objective"] <= WITHIN * reference()
    calls.clear()
    with pytest.raises(FloatingPointError, match=r"rank \d, clock \d+: expected a fin"):
        trained(sick, "async", descent)


def test_waiting_falls_as_the_bound_grows():
    """What a worker waits for of the time that it has, at X = 1 + Exp(1)."""
    idle = {}
    for staleness in (0, 2, 8):
        choice = Choice(staleness=staleness)

        def program(comm, choice=choice):
            comm, who, report = Metered(comm), roles(9, 1), Report()
            setup = Setup(who, consistency("ssp", choice, 8))
            late = delay_distribution("shifted_exponential:1,1")
            comm = Delayed(comm, drawing(late, 5, comm.rank))
            timer = Timer(comm.Wtime)
            how = {"comm": comm, "timer": timer, "setup": setup, "report": report}
            for _ in server(task(), batches(task()), descent, **how):
                pass
            split = partition(60, 1, task().frequency)
            return collected(comm, who, split, 1, report)

        idle[staleness] = sim.run(program, 9)[0].summary["idle_share"]
    assert idle[0] > 0.4 > idle[2] > idle[8]
    for staleness, share in idle.items():  # parts differ by an example
        assert share == pytest.approx(waited(staleness, 5, CLOCKS), abs=0.01)
    assert np.mean([waited(8, seed, 3000) for seed in range(4)]) <= 0.05


def waited(staleness, seed, steps):
    """Return what max-plus says that workers wait, of all their time."""
    draws_TxP = seconds(delay_distribution("shifted_exponential:1,1"), seed, steps, 8)
    starts_TxP = maxplus.ssp(draws_TxP, staleness)
    gap = (starts_TxP[1:] - (starts_TxP + draws_TxP)[:-1]).sum()
    return gap / (gap + draws_TxP.sum())


def test_factors_are_learned_by_any_rule_of_rows():
    from dml.data.sparse.ratings import generated

    training, held_out = generated(40, 30, 900, 3, 0)
    problem = factors.problem(training, held_out, 4, 0.02, 0)
    for rule, rate in (
        ("sgd", 2.0),
        ("momentum", 0.2),
        ("adagrad", 0.2),
        ("adam", 0.02),
    ):
        found = trained(problem, "ssp", lambda v, r=rule, x=rate: table(r, v, x))
        before, after = problem.params, found.table
        gone = problem.evaluate(after)["rmse"] / problem.evaluate(before)["rmse"]
        assert gone < 0.8, rule
