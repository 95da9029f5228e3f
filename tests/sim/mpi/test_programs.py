"""Programs of mpi4py's calls find the same with all algorithms and on all networks."""

from functools import cache

import numpy as np
import pytest

from dml import sim
from dml.sim import MPI
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
