"""All-to-all: every rank sends a part of any length to every other rank.

`all_to_all` sends the lengths first; with `send_parts` all ranks know them.
"""

from collections.abc import Sequence

import numpy as np

from dml.types import BadInput, Comm
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag


def all_to_all(comm: Comm, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Send parts[q] to rank q; return the received parts, in rank order.

        k = 1: 0►1 1►2 2►3 3►0      round k = 1 … p-1: rank r sends to r+k,
        k = 2: 0►2 1►3 2►0 3►1      receives from r-k (mod p)
        k = 3: 0►3 1►0 2►1 3►2

    All parts are vectors of one dtype, on all ranks. A first pass sends the lengths.
    The part from a rank to itself is returned without a copy.
    2(p-1) rounds; over all ranks p(p-1) lengths of 8 bytes, and the n bytes of all
    parts sent to other ranks. With equal parts: 2(p-1)α + (8(p-1) + n/p)β, β per byte.
    """
    comm = as_comm(comm)
    rank, size = comm.rank, comm.size
    dtype = parts[0].dtype if len(parts) else None
    if len(parts) != size or any(p.ndim != 1 or p.dtype != dtype for p in parts):
        shapes = [f"{part.dtype}{part.shape}" for part in parts]
        raise BadInput(
            f"rank {rank}: expected {size} vectors of one dtype, got {shapes}; "
            "pass one vector for each rank; vectors may be empty"
        )
    received = list(parts)
    lengths = np.array([len(part) for part in parts], np.int64)
    for k in range(1, size):
        dest, source = (rank + k) % size, (rank - k) % size
        length = np.empty(1, np.int64)
        sent_length = lengths[dest : dest + 1]
        tag = Tag.ALL_TO_ALL
        comm.Sendrecv(sent_length, dest, tag, length, source, tag)
        if length[0] < 0:
            raise BadInput(
                f"rank {rank}: expected a length of 0 or more from rank {source}, got "
                f"{length[0]}; start all ranks with the same program and flags"
            )
        received[source] = np.empty(length[0], dtype)
    for k in range(1, size):
        dest, source = (rank + k) % size, (rank - k) % size
        # as bytes: MPI has no datatype for a structured dtype
        outgoing = np.ascontiguousarray(parts[dest]).view(np.uint8)
        incoming = received[source].view(np.uint8)
        comm.Sendrecv(outgoing, dest, Tag.ALL_TO_ALL, incoming, source, Tag.ALL_TO_ALL)
    return received


def send_parts(
    comm: Comm, parts: Sequence[np.ndarray], received: Sequence[np.ndarray]
) -> None:
    """Send parts[q] to rank q, and receive its part into received[q].

    Arrays are contiguous, of equal dtypes, and of equal shapes on both ranks. At most
    p-1 messages per rank, all in transit at once; empty parts are not sent.
    """
    rank, size = comm.rank, comm.size
    received[rank][...] = parts[rank]
    requests = []
    for k in range(1, size):
        source = (rank - k) % size
        if received[source].size:
            buffer = received[source].reshape(-1)
            requests.append(comm.Irecv(buffer, source, Tag.ALL_TO_ALL))
    for k in range(1, size):
        dest = (rank + k) % size
        if parts[dest].size:
            buffer = parts[dest].reshape(-1)
            requests.append(comm.Isend(buffer, dest, Tag.ALL_TO_ALL))
    comm.Waitall(requests)
