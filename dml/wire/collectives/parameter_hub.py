"""Parameter Hub (Luo 2018): sums and updates by chunks on the owners of parameters."""

from collections.abc import Callable, Sequence

import numpy as np

from dml.types import Comm
from dml.wire.collectives.shared import own_chunk
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.plans.topology import chunks, segments

# update(start, terms, outputs) for parameters from `start` in this rank's part
Update = Callable[[int, Sequence[np.ndarray], Sequence[np.ndarray]], None]


def hub_update(
    comm: Comm,
    grads: np.ndarray,
    params: np.ndarray,
    update: Update,
    segment: int = 32 << 10,
) -> None:
    """Update the parameters of all ranks by the gradients of all ranks, in place.

        rank 0    rank 1    rank 2          part r of the vector belongs to rank r
        ──────── gradients ───────►         a chunk of part r, from every rank
                  rank r: add, update       while the chunk is in cache
        ◄─────── parameters ───────         the new chunk, to every rank

    The terms are added in rank order. If both vectors are registered, the owner reads
    the gradients and writes the parameters of the other ranks in shared memory, in one
    call of `update`; otherwise a chunk is one message to or from each rank.

    Each rank sends (p-1)/p·n gradients and as many parameters. By messages, with m
    chunks in a part: 2(p-1)mα + 2(p-1)/p·nβ + (p-1)/p·nγ and the time of the update. In
    shared memory: two barriers and the update.

    Args:
      comm: The ranks.
      grads: Gradients of this rank; unchanged.
      params: Parameters, equal on all ranks.
      update: Adds the terms and updates the parameters, such as FusedAdam's `update`.
      segment: Size of a chunk in bytes.
    """
    comm, grads, params = as_comm(comm), flat(comm, grads), flat(comm, params)
    gradients, values = own_chunk(comm, grads), own_chunk(comm, params)
    if gradients is None or values is None:
        by_messages(comm, grads, params, update, segment)
        return
    window, terms = gradients
    own, others = values[1][comm.rank], values[1][:]
    del others[comm.rank]
    window.barrier(comm.platform.pause)  # gradients are complete
    update(0, terms, [own, *others])
    window.barrier(comm.platform.pause)  # parameters are complete


def by_messages(
    comm: Comm, grads: np.ndarray, params: np.ndarray, update: Update, segment: int
) -> None:
    """Exchange and update chunk k of all parts, for each k."""
    rank, size = comm.rank, comm.size
    step = max(1, segment // params.itemsize)
    cut = [
        [slice(part.start + piece.start, part.start + piece.stop) for piece in pieces]
        for part in chunks(len(params), size)
        for pieces in [list(segments(part.stop - part.start, step))]
    ]
    own = cut[rank]
    terms = np.empty((size, min(step, len(params))), params.dtype)
    nothing = slice(0, 0)
    for k in range(max(map(len, cut))):
        pieces = [pieces[k] if k < len(pieces) else nothing for pieces in cut]
        own_piece = pieces[rank]
        length = own_piece.stop - own_piece.start
        received = [terms[source, :length] for source in range(size)]
        received[rank] = grads[own_piece]
        for ahead in range(1, size):
            dest, source = (rank + ahead) % size, (rank - ahead) % size
            exchange(comm, grads[pieces[dest]], dest, received[source], source)
        if length:
            update(own_piece.start - own[0].start, received, [params[own_piece]])
        for ahead in range(1, size):
            dest, source = (rank + ahead) % size, (rank - ahead) % size
            exchange(comm, params[own_piece], dest, params[pieces[source]], source)


def exchange(
    comm: Comm, outgoing: np.ndarray, dest: int, incoming: np.ndarray, source: int
) -> None:
    """Send and receive at the same time; an empty chunk is an empty message."""
    tag = Tag.PARAMETER_HUB
    comm.Sendrecv(outgoing, dest, tag, incoming, source, tag)
