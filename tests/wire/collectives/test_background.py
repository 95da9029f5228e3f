"""All-reduces under way together: on several communicators, or behind a computation."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE, allreduce_async
from dml.wire.comm import Metered
from tests.wire.collectives.conformance import Case, conform, given

NAMES = tuple(ALLREDUCE)


MOST = 100_000  # polls; a handle that needs more will never be done


def poll_all(*handles):
    """Poll all in turn until all are done; nothing else happens between."""
    for _ in range(MOST):
        if all([handle.poll() for handle in handles]):
            return
    raise AssertionError(f"not done after {MOST} polls")


def polled(allreduce):
    """An all-reduce that is polled to its end."""

    def polled_allreduce(comm, buffer, op=np.add):
        poll_all(allreduce_async(comm, buffer, op, allreduce))

    return polled_allreduce


@pytest.mark.parametrize("size", (1, 2, 3, 5, 8))
@pytest.mark.parametrize("name", NAMES)
def test_a_polled_allreduce_conforms(name, size):
    conform(polled(ALLREDUCE[name]), sim.run, size, every=False)


@pytest.mark.parametrize("eager", (0, 1 << 20))
@pytest.mark.parametrize("name", sorted(ALLREDUCE.keys() - {"auto", "shared"}))
def test_a_poll_takes_nothing_before_it_has_come(name, eager):
    """Ranks begin one long after the other, so that messages are late."""
    case = Case(5, 1009, "float32", "sum", True)

    def program(comm):
        blocking, late = (given(case)[comm.rank].copy() for _ in range(2))
        ALLREDUCE[name](comm, blocking)
        for _ in range(20 * comm.rank):
            comm.platform.pause()
        polled(ALLREDUCE[name])(comm, late)
        return blocking.tobytes() == late.tobytes()

    assert sim.run(program, 5, sim.Uniform(eager=eager)) == [True] * 5


@pytest.mark.parametrize("size", (2, 3, 8))
@pytest.mark.parametrize("name", NAMES)
def test_polled_waited_and_blocking_agree_in_every_bit(name, size):
    case = Case(size, 70_001, "float32", "sum", True)

    def program(comm):
        bits = []
        for way in ("blocking", "polled", "waited", "polled, then waited"):
            buffer = given(case)[comm.rank].copy()
            if way == "blocking":
                ALLREDUCE[name](comm, buffer)
            else:
                handle = allreduce_async(comm, buffer, allreduce=ALLREDUCE[name])
                for _ in range(3 if "," in way else 0):
                    handle.poll()
                if way == "polled":
                    poll_all(handle)
                handle.wait()
            bits.append(buffer.tobytes())
        return bits

    found = sim.run(program, size)
    assert len({bits for mine in found for bits in mine}) == 1


def test_without_a_choice_the_handle_takes_what_auto_takes():
    def program(comm):
        buffer = np.full(9, comm.rank + 1.0)
        handle = allreduce_async(comm, buffer, np.multiply)
        handle.wait()
        return buffer.tolist()

    assert sim.run(program, 3) == [[6.0] * 9] * 3


@pytest.mark.parametrize("size", (2, 3, 5))
@pytest.mark.parametrize("name", NAMES)
def test_two_communicators_interleave_in_any_order_of_polls(name, size):
    """Even ranks poll the first one first, odd ranks the second one."""
    cases = [Case(size, 5003, "float64", "sum"), Case(size, 301, "int64", "sum")]

    def program(comm):
        comms = [comm.Dup(), comm.Dup()]
        buffers = [given(case)[comm.rank].copy() for case in cases]
        handles = [
            allreduce_async(one, buffer, allreduce=ALLREDUCE[name])
            for one, buffer in zip(comms, buffers, strict=True)
        ]
        poll_all(*(handles if comm.rank % 2 else handles[::-1]))
        return [
            np.array_equal(buffer, given(case).sum(axis=0))
            for buffer, case in zip(buffers, cases, strict=True)
        ]

    assert sim.run(program, size) == [[True, True]] * size


@pytest.mark.parametrize("name", NAMES)
def test_a_blocking_allreduce_on_another_communicator_passes_one_under_way(name):
    def program(comm):
        other = comm.Dup()
        first, second = np.full(999, comm.rank), np.full(55, 10 * comm.rank)
        handle = allreduce_async(comm, first, allreduce=ALLREDUCE["ring"])
        for _ in range(comm.rank):  # ranks have come to different rounds
            handle.poll()
        ALLREDUCE[name](other, second)
        handle.wait()
        return set(first.tolist()), set(second.tolist())

    assert sim.run(program, 4) == [({6}, {60})] * 4


def test_many_buckets_are_under_way_at_once():
    """As a backward pass begins them, each on a communicator of its own."""

    def program(comm):
        buckets = [np.full(1000 + i, comm.rank + i, np.float64) for i in range(6)]
        handles = []
        for bucket in buckets:
            ring = ALLREDUCE["ring"]
            handles.append(allreduce_async(comm.Dup(), bucket, allreduce=ring))
            comm.platform.compute(1e-5)
            for handle in handles:
                handle.poll()
        for handle in reversed(handles):
            handle.wait()
        return [set(bucket.tolist()) for bucket in buckets]

    assert sim.run(program, 3) == [[{3.0 + 3 * i} for i in range(6)]] * 3


def test_a_computation_that_polls_hides_the_wire():
    network = sim.Uniform(1e-6, 1e-9, 0.0)
    words, pieces, piece = 40_000, 200, 1e-5

    def alone(comm):
        ALLREDUCE["ring"](comm, np.zeros(words))
        return comm.Wtime()

    def behind(comm):
        handle = allreduce_async(comm, np.zeros(words), allreduce=ALLREDUCE["ring"])
        for _ in range(pieces):
            comm.platform.compute(piece)
            handle.poll()
        handle.wait()
        return comm.Wtime()

    wire = max(sim.run(alone, 4, network))
    both = max(sim.run(behind, 4, network))
    assert 0.2 < wire / (pieces * piece) < 1  # there is something to hide
    # Each of 6 rounds begins at a poll, so it ends at most one piece late.
    assert both < pieces * piece + 0.3 * wire


@pytest.mark.parametrize("finish", ("poll", "wait"))
def test_what_a_program_raises_comes_out_where_it_goes_on(finish):
    def fails(comm, buffer, op):
        ALLREDUCE["ring"](comm, buffer, op)
        raise KeyError(f"lost by rank {comm.rank}")

    def program(comm):
        with pytest.raises(KeyError, match=f"lost by rank {comm.rank}"):
            handle = allreduce_async(comm, np.zeros(4), allreduce=fails)
            handle.wait() if finish == "wait" else poll_all(handle)
        return True

    assert sim.run(program, 2) == [True] * 2


def test_a_virtual_rank_has_no_thread_of_its_own():
    def program(comm):
        with pytest.raises(BadInput, match="one thread"):
            allreduce_async(comm, np.zeros(3), thread=True)
        return True

    assert sim.run(program, 2) == [True] * 2


def test_a_deadlock_under_way_names_what_it_waits_for():
    """Rank 1 never begins."""

    def program(comm):
        if comm.rank == 0:
            allreduce_async(comm, np.zeros(9), allreduce=ALLREDUCE["ring"]).wait()

    with pytest.raises(sim.Deadlock, match="source=1, tag=RING"):
        sim.run(program, 2)


def test_words_of_an_allreduce_under_way_are_counted():
    def program(comm):
        metered = Metered(comm)
        handle = allreduce_async(
            metered, np.zeros(100), allreduce=partial(ALLREDUCE["ring"], segment=64)
        )
        poll_all(handle)
        return metered.bytes_sent

    assert sum(sim.run(program, 4)) == 2 * 3 * 100 * 8
