"""Communicators of mpi4py, such as MPI.COMM_WORLD, are accepted as they are."""

from dml import sim
from tests.mpi import plain_main


def test_every_function_accepts_mpi4py_and_has_the_bits_of_virtual_ranks(mpirun):
    bits = sim.run(plain_main.trains, 3)[0]  # of reducers and strategies
    ended = mpirun(3, "plain_main")
    accepts = "all functions accept communicators of mpi4py"
    assert ended == (0, f"{bits!r}\n{accepts}\n", "", 0)
