"""Scans along a chain of ranks, piece by piece (linear)."""

from collections.abc import Iterator

import numpy as np

from dml.types import Comm, Op, Round
from dml.wire.collectives.trees.chain import CHAIN, PIECE, pieces_of_job
from dml.wire.collectives.trees.run import at, steps
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.costs.allreduce import Job, Rates, send_seconds
from dml.wire.plans.broadcasts import broadcast_rounds


def chain_scan(
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    segment: int = PIECE,
    exclusive: bool = False,
) -> None:
    """Reduce in place over ranks 0 … r, or 0 … r-1, for every rank r.

        x_0 ─► x_0 + x_1 ─► (x_0 + x_1) + x_2 ─► …       one piece behind another

    An exclusive scan leaves the buffer of rank 0 unchanged. The bits are those of a
    serial sum in rank order.
    For m pieces: m + p - 2 rounds, (p-1)n elements over all ranks:
    (m + p - 2)(α + n/m·(β + γ)).

    Args:
      comm: The ranks.
      buffer: Buffer to reduce.
      op: The reduction; it need not be commutative.
      segment: Bytes of a piece.
      exclusive: Whether the own buffer is left out.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    total = buffer.copy() if exclusive else buffer
    incoming, tag = np.empty_like(buffer), Tag.SCAN
    turns = steps(CHAIN, comm, total, 0, segment)
    arrivals = steps(CHAIN, comm, incoming, 0, segment)
    for (turn, sent, kept), (_, _, received) in zip(turns, arrivals, strict=True):
        dest, source = at(comm, turn.dest, 0), at(comm, turn.source, 0)
        if turn.source is None:
            comm.Send(sent, dest, tag)
            continue
        if turn.dest is None:
            comm.Recv(received, source, tag)
        else:
            comm.Sendrecv(sent, dest, tag, received, source, tag)
        comm.Reduce_local(kept, received, op, kept)
    if exclusive and comm.rank:
        buffer[...] = incoming


def chain_scan_rounds(
    size: int, length: int, itemsize: int = 4, segment: int = PIECE
) -> Iterator[Round]:
    """Yield the rounds of `chain_scan`."""
    for entry in broadcast_rounds(CHAIN, size, length, itemsize, segment):
        yield entry._replace(reduces=True)


def chain_scan_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of `chain_scan`; for unequal pieces an upper bound."""
    pieces, longest = pieces_of_job(job)
    rounds = pieces + job.size - 2
    reduced = rates.gamma * longest * job.itemsize
    return rounds * (send_seconds(job, rates, longest) + reduced)
