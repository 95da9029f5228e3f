"""Programs of mpi4py's calls find the same with all algorithms and on all networks."""

import random
from functools import cache

import numpy as np
import pytest

from dml import sim
from dml.sim import MPI
from dml.sim.mpi import vectorised
from dml.sim.networks.named import network
from tests.sim.mpi.collective_programs import play

SEEDS = range(4)


@cache
def found(seed, size, collectives="mpich", links=None, eager=None):
    return MPI.run(
        lambda comm: play(MPI, comm, seed),
        size,
        links and network(links, size),
        collectives=collectives,
        eager=eager,
    )


@pytest.mark.parametrize("collectives", ["tree", "ring", "linear"])
@pytest.mark.parametrize("size", [1, 4, 5])
def test_programs_find_the_same_with_all_algorithms(collectives, size):
    for seed in SEEDS:
        assert found(seed, size, collectives) == found(seed, size), seed


@pytest.mark.parametrize("links, eager", [("torus:2x2", None), (None, 100)])
def test_programs_find_the_same_on_a_network(links, eager):
    for seed in SEEDS:
        assert found(seed, 4, "mpich", links, eager) == found(seed, 4), seed


@pytest.mark.parametrize(
    "function, want",
    [(np.add, 6), (np.maximum, 3), (np.bitwise_or, 3), (np.bitwise_xor, 0)],
)
def test_functions_of_numpy_are_operations(function, want):
    def program(comm):
        total = np.zeros(1, np.int64)
        comm.Allreduce(np.array([comm.rank + 1]), total, function)
        return int(total[0])

    assert MPI.run(program, 3) == [want] * 3


def test_functions_without_an_operation_are_refused():
    def program(comm):
        with pytest.raises(TypeError, match="expected an operation such as MPI.SUM"):
            comm.Allreduce(np.ones(1), np.ones(1), np.subtract)

    MPI.run(program, 1)


def test_a_collective_call_matches_no_receive_of_the_program():
    def program(comm):
        into = bytearray(8)
        request = comm.Irecv(into)  # from any rank, with any tag
        total = comm.allreduce(1)
        comm.Send(b"message!", (comm.rank + 1) % comm.size, 3)
        request.Wait()
        return total, bytes(into)

    assert MPI.run(program, 5) == [(5, b"message!")] * 5


def test_a_background_call_overlaps_with_computing():
    def program(comm, overlaps):
        into = np.zeros(10_000)
        start = MPI.Wtime()
        if overlaps:
            request = comm.Iallreduce(np.ones(10_000), into)
            MPI.COMM_WORLD.held.comm.platform.compute(1.0)
            request.Wait()
        else:
            comm.Allreduce(np.ones(10_000), into)
        assert (into == comm.size).all()
        return MPI.Wtime() - start

    alone = max(MPI.run(lambda comm: program(comm, False), 4))
    both = max(MPI.run(lambda comm: program(comm, True), 4))
    assert 0 < alone < 1 == both


def test_an_exchange_ends_when_its_send_has_been_received():
    def program(comm):
        if comm.rank:
            comm.Send(bytes(9), 0)
            comm.held.comm.platform.compute(1.0)
            comm.Recv(bytearray(9), 0)
        else:
            comm.Sendrecv(bytes(9), 1, 0, bytearray(9), 1)
        return MPI.Wtime()

    assert MPI.run(program, 2, eager=0)[0] > 1 > MPI.run(program, 2)[0]


def test_a_rendezvous_shows_a_deadlock_with_its_calls():
    def program(comm):
        comm.Send(bytes(100), (comm.rank + 1) % comm.size)
        comm.Recv(bytearray(100), (comm.rank - 1) % comm.size)

    MPI.run(program, 3)
    with pytest.raises(sim.Deadlock, match=r"rank 2 at .* Send\(dest=0, tag=0, 100 by"):
        MPI.run(program, 3, eager=0)


def test_a_deadlock_in_a_collective_call_names_it():
    def program(comm):
        if comm.rank:
            comm.Barrier()

    with pytest.raises(sim.Deadlock, match="tag=Barrier"):
        MPI.run(program, 3)


def test_errors_have_mpi4py_classes():
    def program(comm):
        comm.Isend(bytes(9), comm.rank, 0)
        codes = []
        for call in (
            lambda: comm.Recv(bytearray(3), comm.rank, 0),
            lambda: comm.Send(b"", comm.size),
            lambda: comm.Send(b"", 0, -5),
            lambda: comm.Bcast(bytearray(1), comm.size),
            lambda: MPI.COMM_NULL.Barrier(),
        ):
            with pytest.raises(MPI.Exception) as caught:
                call()
            codes.append(caught.value.Get_error_class())
        return codes

    names = ("ERR_TRUNCATE", "ERR_RANK", "ERR_TAG", "ERR_ROOT", "ERR_COMM")
    assert MPI.run(program, 2)[1] == [getattr(MPI, name) for name in names]


def test_calls_that_are_left_out_are_named():
    def program(comm):
        with pytest.raises(NotImplementedError, match="Intracomm.Spawn"):
            comm.Spawn("script")
        with pytest.raises(NotImplementedError, match="File.Open"):
            MPI.File.Open(comm, "data")

    MPI.run(program, 1)


def test_calls_outside_of_a_rank_are_refused():
    with pytest.raises(MPI.Exception, match="outside of MPI.run"):
        MPI.COMM_WORLD.Get_rank()


# All-reduces of all ranks at once.


@pytest.fixture
def at_once(monkeypatch):
    """Let few ranks reduce at once; return the list of calls that they ended so."""
    calls, end = [], vectorised.JointCall.end

    def record(call):
        calls.append(call.found is not None)
        end(call)

    monkeypatch.setattr(vectorised, "LEAST_RANKS", 2)
    monkeypatch.setattr(vectorised.JointCall, "end", record)
    return calls


def skewed(comm, seed):
    """Reduce at different times, beside messages from any rank and a window."""
    draws = random.Random(1000 * seed + comm.rank)
    own = comm.held.comm
    notes = play(MPI, comm, seed)
    window, status = MPI.Win.Allocate(8, 1, comm=comm), MPI.Status()
    value, total = np.array([draws.random()] * 3), np.empty(3)
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for round_ in range(4):
        own.platform.compute(draws.random() * 1e-5)
        comm.Isend(bytes(8), after, 7)
        late = round_ > 2 and comm.rank % 2 and comm.Irecv(bytearray(8), before, 8)
        if comm.rank == 0:
            for _ in range(comm.size - 1):
                comm.Recv(bytearray(8), MPI.ANY_SOURCE, 11, status)
                notes.append(status.Get_source())
        else:
            comm.Send(bytes(8), 0, 11)
            window.Lock(0)
            window.Fetch_and_op(np.ones(1, np.int64), np.zeros(1, np.int64), 0)
            window.Unlock(0)
        comm.Isend(bytes(5000), after, 6)
        comm.Barrier()
        long = comm.Irecv(bytearray(5000), before, 6)
        own.platform.compute(1e-9)
        long.Test()  # it is matched, and occupies the in port for some time
        comm.Allreduce(value, total, MPI.SUM)
        notes += [own.process.in_free, own.process.out_free]
        long.Wait()
        comm.Recv(bytearray(8), before, 7)
        if round_ > 2 and after % 2:
            comm.Send(bytes(8), after, 8)
        if late:
            late.Wait()
        request = comm.Iallreduce(total, value, MPI.MAX)
        part = comm.Split(comm.rank % 2)
        part.Allreduce(MPI.IN_PLACE, total, MPI.SUM)
        request.Wait()
        notes += [value.tobytes(), total.tobytes(), MPI.Wtime()]
    window.Free()
    sent = comm.held.owner.messages, comm.held.owner.nbytes
    return notes, sent, own.process.clock, own.process.in_free, own.process.out_free


@pytest.mark.parametrize("size", (2, 3, 4, 7, 8))
def test_sums_at_once_have_the_bits_times_and_words_of_messages(
    size, at_once, monkeypatch
):
    def found():
        return [
            MPI.run(lambda comm, seed=seed: skewed(comm, seed), size) for seed in (0, 1)
        ]

    first = found()
    assert sum(at_once) > 10 and not all(at_once)
    monkeypatch.setattr(vectorised, "may_wait", lambda *call: False)
    assert found() == first


@pytest.mark.parametrize(
    "limits, calls", [(sim.Limits(seconds=1e-3), 1000), (sim.Limits(messages=3), 1)]
)
def test_sums_at_once_count_towards_the_limits(at_once, limits, calls):
    def program(comm):
        for _ in range(calls):
            comm.Allreduce(np.ones(1), np.ones(1))

    with pytest.raises(sim.Deadlock, match="expected a program that ends within"):
        MPI.run(program, 8, limits=limits)
    assert all(at_once) and len(at_once) > 0


def test_ranks_wait_for_a_missing_one_in_messages(at_once):
    def program(comm):
        if comm.rank != 2:
            comm.Allreduce(np.ones(1), np.ones(1))

    with pytest.raises(sim.Deadlock, match="rank 4 at .* Sendrecv.source=2, tag=Allr"):
        MPI.run(program, 5)
    assert at_once == [False]


def test_arguments_that_differ_are_refused_by_messages(at_once):
    def program(comm):
        ones = np.ones(1 + (comm.rank == 1))
        comm.Allreduce(ones, ones.copy())

    with pytest.raises(MPI.Exception, match="ERR_TRUNCATE|truncate"):
        MPI.run(program, 4)
    assert at_once == [False]
