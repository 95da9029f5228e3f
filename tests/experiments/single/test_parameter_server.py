"""The single file of parameter servers has bits and words of the server strategy.

On virtual ranks a gradient takes random seconds, much longer than a message, so that
both receive the gradients in one order, which differs from the order of ranks.
"""

import numpy as np
import pytest

from dml.metrics.timer import Timer
from dml.sim.delays import delay_distribution, step_seconds
from dml.strategies.server.report import Report
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup, server
from dml.types import Problem, Rows
from dml.wire.comm import Delayed
from dml.wire.comm.wrapper import Wrapper
from dml.wire.costs.server import ANSWER_HEADER, REQUEST_HEADER
from dml.wire.server.consistency import Choice, consistency
from experiments.single import parameter_server
from tests.experiments.single.proof import broken, ran

N, STEPS, ALL = parameter_server.N, 12, slice(0, parameter_server.N)
NAMES = ("bsp", "async", "ssp", "essp", "softsync")
PAUSE = 0.01  # seconds after a gradient: the messages of the server have arrived
S, SOFTSYNC = 1, {1: 1, 2: 1, 3: 3, 4: 2}  # n of n-softsync by number of workers


def slowed(comm, worker):
    """Return a communicator on which a gradient takes random seconds."""
    draws = delay_distribution("shifted_exponential:1,1")
    return Delayed(comm, step_seconds(draws, 3, worker))


def mean_gradient(worker, workers, x, clock):
    return parameter_server.gradient(worker + 1, 2, x, clock)


class Paused(Wrapper):
    """Pauses after a gradient has been sent."""

    def Send(self, buf, dest, tag=0):
        self.comm.Send(buf, dest, tag)
        if tag == parameter_server.GRADIENT:
            self.platform.compute(PAUSE)


class Descent:
    """Gradient descent in NumPy."""

    def __init__(self, values):
        self.values = values

    def update(self, at, grads, share=1.0):
        self.values[at] -= parameter_server.RATE * grads


def modular(name, workers):
    """Return the results of the strategy, with the numbers of words without heads."""
    rule = consistency(name, Choice(S, SOFTSYNC[workers]), workers)
    rule = rule._replace(staleness_scaled=name == "softsync")

    def program(comm):
        def gradient(table, part):
            grads = mean_gradient(comm.rank, workers, table[:, 0], part[0] // workers)
            return 0.0, Rows(ALL, grads[:, None])

        x, same = np.zeros((N, 1), np.float32), lambda given: given
        task = Problem(x, workers * STEPS, gradient, dict, same, lambda part: ALL)
        minibatches = np.arange(workers * STEPS).reshape(STEPS, workers)
        report, setup = Report(), Setup(roles(comm.size, 1), rule)
        how = {"timer": Timer(comm.Wtime), "report": report, "setup": setup}
        delayed = slowed(comm, comm.rank)
        for _ in server(task, minibatches, Descent, comm=delayed, **how):
            comm.platform.compute(PAUSE)
        if comm.rank < workers:
            return (comm.bytes_sent - REQUEST_HEADER * comm.messages_sent) // 4
        ends = workers * (name == "essp")
        answers = (comm.messages_sent - ends) // 2
        words = (comm.bytes_sent - ANSWER_HEADER * (answers + ends)) // 4
        assert words == N * answers
        staleness = [entry.staleness for entry in report.log]
        return report.values.tobytes(), report.version, staleness, words

    *words, found = [result for result, _ in ran(program, workers + 1)]
    return found, words


def single(name, workers, module=parameter_server):
    """Return what `modular` returns, of the single file."""
    rule = module.rules(workers, S, SOFTSYNC[workers])[name]
    share, bounds = np.float32(1 / workers), []

    def program(comm):
        delayed, x = slowed(comm, comm.rank - 1), np.zeros(N, np.float32)

        def gradient(x, clock):
            delayed.platform.work(1.0)
            return mean_gradient(comm.rank - 1, workers, x, clock) * share

        if comm.rank:
            module.work(Paused(comm), rule, x, gradient, STEPS)
            return comm.bytes_sent // 4 - comm.messages_sent
        version, staleness, ahead, answers = module.serve(comm, rule, x, STEPS)
        ends = workers * (name == "essp")
        assert comm.bytes_sent == 4 * ((N + 3) * answers + ends)
        bounds.append(ahead <= rule.s)
        return x.tobytes(), version, staleness, N * answers

    found, *words = [result for result, _ in ran(program, workers + 1)]
    return (found, words) if all(bounds) else "too far ahead"


@pytest.mark.parametrize("workers", SOFTSYNC)
@pytest.mark.parametrize("name", NAMES)
def test_bits_staleness_and_words_are_those_of_the_strategy(name, workers):
    assert single(name, workers) == modular(name, workers)


def test_the_orders_of_arrival_differ_from_the_order_of_ranks():
    (_, _, staleness, _), _ = single("async", 4)
    assert len(set(staleness)) > 3


def test_only_bsp_is_always_equal_to_one_process(capsys):
    for size in (2, 3, 4):
        ran(parameter_server.main, size)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    equal = {row[0]: row[-1] for row in rows}
    assert equal == dict.fromkeys(NAMES, "False") | {"bsp": "True", "rule": "serial"}
    with pytest.raises(SystemExit, match="expected 2 ranks or more, got 1"):
        ran(parameter_server.main, 1)


@pytest.mark.parametrize(
    "name, old, new",
    [
        ("bsp", "pending.sort()", "pass"),
        ("async", "s: float = np.inf", "s: float = 3"),
        ("essp", "x += step", "pass"),
        ("ssp", "waiting[w] <= slowest", "True"),
        ("essp", "or 0 <= complete < need", ""),
        ("softsync", "max(1, tau) if rule.mean else 1", "1"),
    ],
)
def test_a_broken_line_changes_the_results(name, old, new, tmp_path):
    mutant = broken(tmp_path, parameter_server, (old, new))
    assert single(name, 4, mutant) != modular(name, 4)
