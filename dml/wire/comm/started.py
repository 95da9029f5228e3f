"""Environment variables of processes that mpirun starts, without MPI."""

import os

SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")


def started_ranks() -> int:
    """Return the number of processes that mpirun has started; 1 without mpirun."""
    sizes = [os.environ.get(name, "") for name in SIZES]
    return max((int(size) for size in sizes if size.isdigit()), default=1)
