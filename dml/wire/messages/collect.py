"""Collect arrays of any length on rank 0."""

import numpy as np

from dml.types import Comm
from dml.wire.messages.tags import Tag


def collect(comm: Comm, mine: np.ndarray) -> list[np.ndarray] | None:
    """Return every rank's array on rank 0, None elsewhere; collective.

    They differ at most in the length of their first axis. 2(p-1) messages.
    """
    mine = np.ascontiguousarray(mine)
    if comm.rank:
        comm.Send(np.array([len(mine)]), 0, Tag.COLLECT)
        comm.Send(mine.reshape(-1), 0, Tag.COLLECT)
        return None
    found, length = [mine], np.zeros(1, np.int64)
    for source in range(1, comm.size):
        comm.Recv(length, source, Tag.COLLECT)
        part = np.empty((int(length[0]), *mine.shape[1:]), mine.dtype)
        comm.Recv(part.reshape(-1), source, Tag.COLLECT)
        found.append(part)
    return found
