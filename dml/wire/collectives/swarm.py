"""Broadcast of a buffer in pieces, in which every rank sends."""

import numpy as np

from dml.types import Comm
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.plans import swarm
from dml.wire.plans.topology import chunks


def swarm_broadcast(
    comm: Comm, buffer: np.ndarray, root: int = 0, pieces: int = 32, seed: int = 0
) -> None:
    """Copy the buffer of the rank `root` to all ranks, piece by piece.

        round 0:  root ─ piece 0 ─► 2
        round 1:  root ─ piece 1 ─► 3    2 ─ piece 0 ─► 4
        round 2:  root ─ piece 2 ─► 2    2 ─ piece 0 ─► 1    4 ─ piece 0 ─► 3    …

    For M pieces and p - 1 = 2^k: M + k rounds and (p-1)n elements over all ranks,
    (M + lg(p-1))(α + n/M·β), the minimum over schedules with one upload per rank and
    round. For p = 2^k: M + lg p rounds, one above the minimum. For other p: the rounds
    of a random swarm (`plans.swarm.rarest_first`).

    Args:
      comm: The ranks.
      buffer: Contiguous buffer, of equal length and dtype on all ranks.
      root: Rank whose values are copied.
      pieces: Number of pieces.
      seed: Seed of the random swarm, equal on all ranks.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    if comm.size == 1:
        return
    pieces = max(1, min(pieces, len(buffer)))
    parts = [buffer[part] for part in chunks(len(buffer), pieces)]
    place = (comm.rank - root) % comm.size  # in the schedule; the root has place 0
    for uploads in swarm.schedule(pieces, comm.size - 1, seed):
        sent = np.flatnonzero(uploads.source == place)
        received = np.flatnonzero(uploads.dest == place)
        if len(sent) and len(received):
            comm.Sendrecv(
                parts[uploads.piece[sent[0]]],
                rank_at(comm, uploads.dest[sent[0]], root),
                Tag.BROADCAST,
                parts[uploads.piece[received[0]]],
                rank_at(comm, uploads.source[received[0]], root),
                Tag.BROADCAST,
            )
        elif len(sent):
            dest = rank_at(comm, uploads.dest[sent[0]], root)
            comm.Send(parts[uploads.piece[sent[0]]], dest, Tag.BROADCAST)
        elif len(received):
            source = rank_at(comm, uploads.source[received[0]], root)
            comm.Recv(parts[uploads.piece[received[0]]], source, Tag.BROADCAST)


def rank_at(comm: Comm, place: int, root: int) -> int:
    """Return the rank at a place of the schedule."""
    return (int(place) + root) % comm.size
