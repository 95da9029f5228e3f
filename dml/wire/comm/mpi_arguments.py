"""Arguments of mpi4py's calls: ranks and tags of dml, and refusals after an error."""

from operator import index
from typing import Any

import numpy as np

from dml.types import ANY, PROC_NULL
from dml.types.messages import as_bytes, dest_of, source_of, tag_of
from dml.wire.comm.mpi_library import MPI
from dml.wire.comm.mpi_requests import translated

SOURCES = {ANY: MPI.ANY_SOURCE, PROC_NULL: MPI.PROC_NULL}


def mpi_source(source: int) -> int:
    """Return a source under mpi4py's name, unless it is a rank."""
    return index(source) if source >= 0 else SOURCES.get(source, source)


def mpi_dest(dest: int) -> int:
    """Return a destination under mpi4py's name, unless it is a rank."""
    return MPI.PROC_NULL if dest == PROC_NULL else index(dest)


def mpi_tag(tag: int) -> int:
    """Return the tag of a receive under mpi4py's name, unless it is a number."""
    return MPI.ANY_TAG if tag == ANY else index(tag)


def refuse_objects(buffer: Any) -> None:
    """Raise TypeError for an array of Python objects, whose pointers MPI would send."""
    if buffer is not None and buffer.dtype.hasobject:
        raise TypeError


def checked(comm: Any, error: Exception, send: Any = None, receive: Any = None) -> Any:
    """Return the arguments of a call that failed in a form that mpi4py accepts.

    Args:
      comm: World of the call.
      error: Error of the call.
      send: Buffer, destination and tag, if the call sends.
      receive: Buffer, source and tag, if the call receives.

    Raises:
      BadInput: The arguments are not valid.
      RankFailed: A rank has died.
    """
    arguments: list[Any] = []
    if send is not None:
        _, dest, tag = send
        dest, tag = dest_of(dest, comm.size), tag_of(tag)
        arguments += [as_bytes(send[0]), dest, tag]
    if receive is not None:
        _, source, tag = receive
        source, tag = source_of(source, comm.size), tag_of(tag, receives=True)
        arguments += [as_bytes(receive[0], writeable=True), source, tag]
    given = [each[0] for each in (send, receive) if each is not None]
    if isinstance(error, MPI.Exception) or all(map(is_bytes, given)):
        raise translated(error, comm) from error
    return arguments


def is_bytes(buffer: Any) -> bool:
    return isinstance(buffer, np.ndarray) and buffer.dtype == np.uint8


def refused_probe(comm: Any, error: Exception, source: Any, tag: Any) -> Exception:
    """Return the error of a probe; raise BadInput if its arguments are not valid."""
    source_of(source, comm.size)
    tag_of(tag, receives=True)
    return translated(error, comm)
