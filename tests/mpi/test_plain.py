"""Communicators of mpi4py, such as MPI.COMM_WORLD, are accepted as they are."""

from dml import sim
from tests.mpi import plain_main


def test_every_function_accepts_communicators_of_mpi4py(mpirun):
    ended = mpirun(3, "plain_main", "finalize", timeout=200)
    assert ended == (0, "all functions accept communicators of mpi4py\n", "", 0)


def test_reducers_and_strategies_have_the_bits_of_virtual_ranks(mpirun):
    virtual = sim.run(plain_main.trains, 2)[0]
    ended = mpirun(2, "plain_main", "trains", timeout=100)
    assert ended == (0, f"{virtual!r}\n", "", 0)
