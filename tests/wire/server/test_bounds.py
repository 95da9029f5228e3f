"""Staleness and times of reads, and times of barriers; the oracle is max-plus."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from dml import sim
from dml.sim import maxplus
from dml.sim.delays import delay_distribution, seconds, step_seconds, straggler
from dml.wire.comm import Metered
from dml.wire.server.barriers import asynchronous, k_of_p, ssp, synchronous
from dml.wire.server.consistency import Choice, consistency
from tests.wire.server.served import FREE, finish, replicated, run_servers


def reads(workers, clocks, rule, law_text, seed):
    """Worker i sets element [i, k] to 1 in clock k.

    Return the tables that each worker reads, the times of the reads, and the delays.
    """
    draws_TxP = seconds(delay_distribution(law_text), seed, clocks, workers)
    rows = slice(0, workers * clocks)

    def work(client, comm):
        replica = replicated(client, rule, rows.stop)
        seen, starts = [], []
        for k in range(clocks):
            replica.finish_read(replica.begin_read(rows, k), rows, k)
            starts.append(comm.Wtime())
            seen.append(replica.table.reshape(workers, clocks).copy())
            comm.platform.compute(draws_TxP[k, comm.rank])
            mark = np.zeros((rows.stop, 1), np.float32)
            mark[comm.rank * clocks + k] = 1
            replica.add_gradient(rows, mark, 1)
            replica.pushes += 1
            client.push(rows, mark, ends_clock=True)
        finish(client, replica)
        return seen, starts

    found, _ = run_servers(work, workers, rule=rule, rows=rows.stop, network=FREE)
    seen, starts_PxT = zip(*found, strict=True)
    return seen, np.array(starts_PxT).T, draws_TxP


def missing(seen, staleness):
    """Return the first required gradient that a read lacks, or None.

    The result is (reader, clock of the reader, writer, clock of the writer).
    """
    for reader, tables in enumerate(seen):
        for k, marks in enumerate(tables):
            if marks.max(initial=0) > 1:
                return reader, k, "twice"
            for writer, row in enumerate(marks):
                required = k if writer == reader else max(0, k - staleness)
                lacking = np.flatnonzero(row[:required] != 1)
                if len(lacking):
                    return reader, k, writer, lacking[0]
    return None


LAWS = ["shifted_exponential:1,1", "pareto:1,1.5*1,1,0.5", "constant:1*1,2,3"]


@settings(max_examples=40)
@given(
    some.sampled_from(["ssp", "essp", "bsp", "async"]),
    some.integers(0, 4),
    some.integers(1, 5),
    some.sampled_from(LAWS),
    some.integers(0, 10**6),
)
def test_reads_have_all_that_they_must_at_the_times_of_max_plus(
    name, s, workers, law_text, seed
):
    rule = consistency(name, Choice(staleness=s), workers)
    seen, starts_TxP, draws_TxP = reads(workers, 9, rule, law_text, seed)
    bound = {"bsp": 0, "async": math.inf}.get(name, s)
    assert missing(seen, 9 if name == "async" else bound) is None
    np.testing.assert_allclose(starts_TxP, maxplus.ssp(draws_TxP, bound), rtol=1e-12)


def test_a_row_is_read_anew_only_when_its_bound_requires_it():
    rule, rows = consistency("ssp", Choice(staleness=2), 1), slice(0, 1)

    def work(client, comm):
        replica, kept = replicated(client, rule, 2), []
        for k in range(12):
            replica.finish_read(replica.begin_read(rows, k), rows, k)
            kept.append((client.rows_pulled, len(replica.own_changes)))
            replica.add_gradient(rows, np.ones((1, 1), np.float32), 1)
            replica.pushes += 1
            client.push(rows, np.ones((1, 1), np.float32), ends_clock=True)
        return kept, comm.bytes_sent

    (((kept, sent),), _) = run_servers(work, 1, rule=rule, rows=2)
    assert kept == [(1 + k // 3, k % 3) for k in range(12)]
    (((also, more),), _) = run_servers(work, 1, 2, rule=rule, rows=2)
    assert also == kept
    assert more - sent == 12 * 64  # only pushes are sent to all servers


def test_a_gradient_is_as_stale_as_the_oldest_row_that_it_is_of():
    rule = consistency("ssp", Choice(staleness=9), 1)

    def work(client, comm):
        replica = replicated(client, rule, 2)
        for k, row in enumerate([0, 1, 0, 1]):
            rows = np.array([row], np.int32)
            replica.finish_read(replica.begin_read(rows, k), rows, k)
            client.push(rows, np.ones((1, 1), np.float32), ends_clock=True)

    _, (server,) = run_servers(work, 1, rule=rule, rows=2)
    assert [one.staleness for one in server.log] == [0, 0, 2, 2]


def test_one_clock_too_stale_is_caught():
    rule = consistency("ssp", Choice(staleness=3), 4)
    seen, starts_TxP, draws_TxP = reads(4, 12, rule, LAWS[0], 0)
    assert missing(seen, 2) is not None
    assert np.abs(starts_TxP - maxplus.ssp(draws_TxP, 2)).max() > 0.1


def test_an_eager_server_sends_only_what_changed_of_what_was_read():
    rule = consistency("essp", Choice(staleness=1), 2)
    reads, writes = [[0, 1], [2]], [[0, 1, 5], [1, 6]]

    def work(client, comm):
        replica = replicated(client, rule)
        rows, wrote = (np.array(of[comm.rank], np.int32) for of in (reads, writes))
        for k in range(4):
            replica.finish_read(replica.begin_read(rows, k), rows, k)
            comm.platform.compute(1)
            if k == 1:
                client.push(wrote, np.ones((len(wrote), 1), np.float32))
            client.end_clock()
        finish(client, replica)

    _, (server,) = run_servers(work, 2, rule=rule, network=FREE)
    # of answers, of changes (not sent to workers that have ended), of ends
    heads = 2 + 7 + 2
    answers, changes = 4 * (2 + 1), 2 * (4 + 4)  # bytes of rows; of rows and numbers
    assert server.comm.bytes_sent == 32 * heads + answers + changes


BARRIER_LAWS = ("shifted_exponential:1,0.5", "pareto:1,1.5*1,0.3", "constant:1")
STEPS = 12


def starts(program, text, size, seed=0, sent=None):
    """Return the times at which the steps of all workers begin on virtual ranks."""

    def live(comm):
        work = straggler(comm, step_seconds(delay_distribution(text), 5, comm.rank))
        metered = Metered(comm)
        return program(metered, work, STEPS), metered.messages_sent

    found, messages = zip(*sim.run(live, size + 1, FREE, seed), strict=True)
    *workers, server = found
    assert not len(server)
    if sent:
        assert (sum(messages[:-1]), messages[-1]) == sent
    return np.array(workers).T


@pytest.mark.parametrize("size", (1, 2, 7, 32))
@pytest.mark.parametrize("text", BARRIER_LAWS)
@pytest.mark.parametrize("staleness", (0, 1, 2, 4, math.inf))
def test_bounded_staleness_takes_as_long_as_by_max_and_plus(staleness, text, size):
    found_TxP = starts(partial(ssp, staleness=staleness), text, size)
    seconds_TxP = seconds(delay_distribution(text), 5, STEPS, size)
    wanted_TxP = maxplus.ssp(seconds_TxP, staleness)
    assert found_TxP == pytest.approx(wanted_TxP, rel=1e-12)


@pytest.mark.parametrize("text", BARRIER_LAWS)
@pytest.mark.parametrize("k, size", ((1, 1), (1, 4), (3, 4), (4, 4), (24, 32)))
def test_k_of_p_takes_as_long_as_by_max_and_plus(text, k, size):
    # a worker that is stopped sends no message in this step
    sent = STEPS * k + size, STEPS * size
    sent = None if text == "constant:1" else sent  # all workers end at the same time
    found_TxP = starts(partial(k_of_p, k=k), text, size, size, sent)
    wanted_TxP = maxplus.k_of_p(seconds(delay_distribution(text), 5, STEPS, size), k)
    assert found_TxP == pytest.approx(wanted_TxP, rel=1e-12)


@pytest.mark.parametrize("size", (1, 2, 7, 32))
def test_a_barrier_is_no_staleness_and_no_bound_is_no_waiting(size):
    text = BARRIER_LAWS[0]
    tight = starts(synchronous, text, size)
    assert tight == pytest.approx(starts(ssp, text, size), rel=1e-12)
    loose = starts(asynchronous, text, size)
    alone_TxP = np.cumsum(seconds(delay_distribution(text), 5, STEPS, size), axis=0)
    assert loose[1:] == pytest.approx(alone_TxP[:-1], rel=1e-12)
