"""Private functions of mpi4py's module MPI that its package `util` imports."""

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


def typecode(datatype: Any) -> str | None:
    """Return the character of NumPy for a predefined datatype; None if it has none."""
    held = datatype.need("_typecode")
    return datatype.typechar if held.named and held.layout.basic is not None else None


def typealign(datatype: Any) -> int | None:
    """Return the alignment of a predefined datatype; None if it has none."""
    basic = datatype.need("_typealign").layout.basic
    return None if basic is None else basic.alignment


PRIVATE = {
    "_typecode": typecode,
    "_typealign": typealign,
    "_comm_lock": comm_lock,
    "_commctx_intra": commctx_intra,
    "_commctx_inter": lacking("pkl5.Intercomm"),
}
