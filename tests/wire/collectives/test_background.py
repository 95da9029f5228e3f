"""All-reduces under way together: on several communicators, or behind a computation."""

import numpy as np
import pytest

from dml import sim
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE, allreduce_async
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
@pytest.mark.parametrize("name", NAMES)
def test_polled_waited_and_blocking_agree_in_every_bit(name, eager):
    """Ranks begin long after one another, so that messages are late."""

    def program(comm):
        bits = []
        for size, length in ((5, 1009), (3, 70_001)):
            group = comm.Split(int(comm.rank < size))
            case = Case(group.size, length, "float32", "sum", True)
            for way in ("blocking", "polled", "waited"):
                buffer = given(case)[group.rank].copy()
                if way == "blocking":
                    ALLREDUCE[name](group, buffer)
                    bits.append([])
                else:
                    for _ in range(20 * comm.rank):
                        comm.platform.pause()
                    handle = allreduce_async(group, buffer, allreduce=ALLREDUCE[name])
                    handle.poll()
                    if way == "polled":
                        poll_all(handle)
                    handle.wait()
                bits[-1].append(buffer.tobytes())
        return bits

    for mine in sim.run(program, 5, sim.Uniform(eager=eager)):
        assert all(len(set(bits)) == 1 for bits in mine)


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

    sim.run(program, 2)


def test_virtual_ranks_have_no_thread_and_a_deadlock_names_what_it_waits_for():
    def program(comm):
        with pytest.raises(BadInput, match="one thread"):
            allreduce_async(comm, np.zeros(3), thread=True)
        if comm.rank == 0:  # rank 1 never begins
            allreduce_async(comm, np.zeros(9), allreduce=ALLREDUCE["ring"]).wait()

    with pytest.raises(sim.Deadlock, match="source=1, tag=RING"):
        sim.run(program, 2)
