"""Gather arrays of any length on rank 0."""

import numpy as np

from dml.types import Comm
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag


def gather_arrays(comm: Comm, *arrays: np.ndarray) -> list[list[np.ndarray]] | None:
    """Return the arrays of all ranks on rank 0, and None on other ranks; collective.

    The result has a list for each argument, with the array of every rank in rank order.
    Only the length of the first axis may differ between ranks. 2(p-1) messages.
    """
    comm = as_comm(comm)
    arrays = tuple(np.ascontiguousarray(array) for array in arrays)
    lengths = np.array([len(array) for array in arrays])
    if comm.rank:
        comm.Send(lengths, 0, Tag.COLLECT)
        parts = [array.reshape(-1).view(np.uint8) for array in arrays]
        comm.Send(np.concatenate(parts), 0, Tag.COLLECT)
        return None
    gathered = [[array] for array in arrays]
    for source in range(1, comm.size):
        comm.Recv(lengths, source, Tag.COLLECT)
        parts = [
            np.empty((length, *array.shape[1:]), array.dtype)
            for length, array in zip(lengths.tolist(), arrays, strict=True)
        ]
        message = np.empty(sum(part.nbytes for part in parts), np.uint8)
        comm.Recv(message, source, Tag.COLLECT)
        start = 0
        for by_rank, part in zip(gathered, parts, strict=True):
            stop = start + part.nbytes
            part.reshape(-1).view(np.uint8)[:] = message[start:stop]
            by_rank.append(part)
            start = stop
    return gathered
