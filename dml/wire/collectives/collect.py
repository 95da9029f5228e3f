"""Collect arrays of any length on rank 0."""

import numpy as np

from dml.types import Comm
from dml.wire.comm.tags import Tag


def collect(comm: Comm, *mine: np.ndarray) -> list[list[np.ndarray]] | None:
    """Return every rank's arrays on rank 0, a list an argument; None elsewhere.

    The arrays of an argument differ at most in the length of their first axis.
    Collective; 2(p-1) messages.
    """
    arrays = [np.ascontiguousarray(array) for array in mine]
    lengths = np.array([len(array) for array in arrays])
    if comm.rank:
        comm.Send(lengths, 0, Tag.COLLECT)
        parts = [array.reshape(-1).view(np.uint8) for array in arrays]
        comm.Send(np.concatenate(parts), 0, Tag.COLLECT)
        return None
    found = [[array] for array in arrays]
    for source in range(1, comm.size):
        comm.Recv(lengths, source, Tag.COLLECT)
        parts = [
            np.empty((length, *array.shape[1:]), array.dtype)
            for length, array in zip(lengths.tolist(), arrays, strict=True)
        ]
        whole = np.empty(sum(part.nbytes for part in parts), np.uint8)
        comm.Recv(whole, source, Tag.COLLECT)
        start = 0
        for each, part in zip(found, parts, strict=True):
            stop = start + part.nbytes
            part.reshape(-1).view(np.uint8)[:] = whole[start:stop]
            each.append(part)
            start = stop
    return found
