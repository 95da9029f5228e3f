"""Private functions of mpi4py's module MPI that `mpi4py.util.pkl5` imports."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from dml.sim.mpi.constants import lacking

MOST_TAGS = 1 << 15  # of calls that may be under way at once


def comm_lock(comm: Any, key: Any = None) -> AbstractContextManager:
    """Return a lock of a communicator: a virtual rank has one thread."""
    return nullcontext()


def commctx_intra(comm: Any) -> tuple[Any, int]:
    """Return a duplicate of a communicator, made by its first call, and a new tag."""
    held = comm.need("pkl5")
    if held.duplicate is None:
        held.duplicate = comm.Dup()
    held.tags = (held.tags + 1) % MOST_TAGS
    return held.duplicate, held.tags


PRIVATE = {
    "_comm_lock": comm_lock,
    "_commctx_intra": commctx_intra,
    "_commctx_inter": lacking("pkl5.Intercomm"),
}
