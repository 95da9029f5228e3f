"""Communicators of mpi4py as communicators of dml."""

from typing import Any, cast

from dml.types import Comm
from dml.types.operations import mpi4py


def as_comm(comm: Any) -> Comm:
    """Return a communicator of mpi4py as a Comm; others are returned unchanged.

    Every function of dml that takes a communicator calls this function first, so that
    MPI.COMM_WORLD and the results of its Split and Dup can be passed as they are.

    The first call with a communicator of mpi4py is collective: it duplicates the
    communicator, so that messages of dml are not matched with those of the program.
    Later calls return the same Comm. It is freed when the program frees its
    communicator, together with the windows and communicators that were made from it.

    The communicator of the program, its error handler and sys.excepthook do not change.
    An exception on one rank therefore leaves the other ranks waiting, as with mpi4py
    alone. `dml.world()` ends all ranks instead, and has a watchdog against deadlocks.

    Args:
      comm: Communicator.

    Raises:
      BadInput: It is an intercommunicator of mpi4py, or was freed.
    """
    if hasattr(comm, "Reduce_local"):  # faster than a property; mpi4py's have none
        return comm
    mpi = mpi4py()
    if mpi is None or not isinstance(comm, mpi.Comm):
        return cast(Comm, comm)
    from dml.wire.comm.mpi_plain import world_of

    return cast(Comm, world_of(comm))
