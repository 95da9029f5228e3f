"""Messages, calls and memory of virtual ranks as their number grows."""

import tracemalloc

import numpy as np
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.strategies.server.report import Report, collect_reports
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup, server
from dml.types import Problem, Rows, identity
from dml.wire.collectives import ALLREDUCE, predicted_seconds
from dml.wire.collectives.benchmark import benchmark, seconds_per_call
from dml.wire.collectives.gather_arrays import gather_arrays
from dml.wire.comm import Metered
from dml.wire.comm.buffers import allocate
from dml.wire.plans.partition import partition
from dml.wire.server.consistency import Choice, consistency
from dml.wire.server.server import Server

ROWS = 20_000
WIDTH = 4


def bytes_a_rank(program, few=64, many=512):
    """Return the growth of the peak of memory from few to many ranks, a rank."""
    peaks = []
    for size in (few, few, many):  # the first run fills caches
        tracemalloc.start()
        sim.run(program, size)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return (peaks[2] - peaks[1]) / (many - few)


def test_a_race_of_virtual_ranks_keeps_no_list_of_all_ranks_on_each():
    def program(comm):
        comm = Metered(comm)
        buffer = allocate(comm, 100)
        benchmark(comm, {"butterfly": ALLREDUCE["butterfly"]}, buffer, 1)
        predicted_seconds(comm, "butterfly", buffer)

    sizes = (64, 512), (512, 1536)
    first, second = (bytes_a_rank(program, *pair) for pair in sizes)
    assert second < 1.3 * first


@pytest.mark.parametrize("name", ("hierarchical", "shared", "auto", "ring"))
def test_what_an_allreduce_sets_up_is_not_in_its_virtual_seconds(name):
    def program(comm):
        comm = Metered(comm)
        buffer = np.zeros(1000)
        (row,) = benchmark(comm, {name: ALLREDUCE[name]}, buffer, 1)
        later = seconds_per_call(comm, lambda: ALLREDUCE[name](comm, buffer), 1)
        return row["seconds"], later

    first, later = np.array(sim.run(program, 6, sim.Uniform(host=6))).T
    np.testing.assert_allclose(first, later.max(), rtol=1e-9)


def test_arrays_are_collected_by_two_messages_of_each_rank():
    def program(comm):
        comm = Metered(comm)
        numbers = np.arange(comm.rank, dtype=np.float32)
        found = gather_arrays(comm, numbers, np.full((2, 3), comm.rank), np.empty(0))
        return comm.messages_sent, found

    (first, (numbers, squares, empty)), *others = sim.run(program, 5)
    assert (first, [sent for sent, _ in others]) == (0, [2] * 4)
    assert [one.tolist() for one in numbers] == [list(range(r)) for r in range(5)]
    assert [one.tolist() for one in squares] == [[[r] * 3] * 2 for r in range(5)]
    assert [one.dtype for one in numbers + squares] == [np.float32] * 5 + [int] * 5
    assert [len(one) for one in empty] == [0] * 5


def gradient(table_TxD, numbers):
    """Return the gradient of a problem of which an example touches one row."""
    return 1.0, Rows(numbers, np.ones((len(numbers), WIDTH), np.float32))


class Descent:
    """Plain descent of rows."""

    def __init__(self, values):
        self.values = values

    def update(self, at, grads, share=1.0):
        self.values[at] -= grads


def trained(name, batch, clocks=3):
    """Return a program of one server, and workers of which `batch` have an example."""
    table = np.zeros((ROWS, WIDTH), np.float32)
    problem = Problem(table, ROWS, gradient, lambda table: {}, touched=identity)

    def program(comm):
        comm = Metered(comm)
        who = roles(comm.size, servers=1)
        rule = consistency(name, Choice(), who.workers)
        report = Report()
        batches = (np.arange(batch) + clock for clock in range(clocks))
        timer, setup = Timer(comm.Wtime), Setup(who, rule)
        how = {"comm": comm, "timer": timer, "setup": setup, "report": report}
        for _ in server(problem, batches, Descent, **how):
            pass
        found = collect_reports(comm, who, partition(ROWS, 1), WIDTH, report)
        return found and found.table

    return program


def test_workers_without_examples_keep_no_copy_of_the_table():
    grown = bytes_a_rank(trained("bsp", batch=4), 32, 256)
    assert grown < ROWS * WIDTH  # bytes: a quarter of a copy


def test_workers_that_read_all_rows_anew_record_no_reads():
    few, many = (bytes_a_rank(trained("bsp", n), 32, 64) for n in (4, 64))
    assert many - few < 2 * 4 * ROWS * WIDTH  # bytes: one copy and what is sent


@pytest.mark.parametrize("name", ("bsp", "ssp"))
@pytest.mark.parametrize("workers", (3, 40))
def test_a_server_looks_through_waiting_workers_once_a_clock(
    name, workers, monkeypatch
):
    calls, answer = [], Server.answer_pulls
    monkeypatch.setattr(
        Server, "answer_pulls", lambda self: calls.append(self.clock) or answer(self)
    )
    table, *_ = sim.run(trained(name, batch=2), workers + 1)
    assert calls == [1, 2, 3]
    assert table.sum() == -3 * WIDTH


def test_an_allreduce_without_windows_runs_once_for_both_kinds_of_memory():
    def program(comm):
        comm, rows, known = Metered(comm), [], {}
        for name in ("butterfly", "shared"):
            for buffer in (allocate(comm, 100), np.zeros(100, np.float32)):
                before, race = comm.messages_sent, {name: ALLREDUCE[name]}
                (row,) = benchmark(comm, race, buffer, 1, checked=known)
                rows.append(
                    (comm.messages_sent - before, row["sha256"], row["seconds"])
                )
        return rows

    for once, again, registered, plain in sim.run(program, 8):
        assert once[0] == 3 and again == (0, once[1], pytest.approx(once[2], rel=1e-9))
        assert plain[2] > registered[2]  # on plain memory `shared` copies
