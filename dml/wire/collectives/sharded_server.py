"""All-reduce by a sharded parameter server (Li 2014), two-shot: a part on each rank."""

from collections.abc import Iterator

import numpy as np

from dml.types import Comm, Op, Round
from dml.wire.collectives.all_to_all import send_parts
from dml.wire.collectives.segments import copied
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.costs.allreduce import Job, Rates, send_seconds
from dml.wire.plans.schedules import chunk_bytes
from dml.wire.plans.topology import SEGMENT, chunks


def server_allreduce(
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    result: np.ndarray | None = None,
) -> None:
    """Reduce in place over all ranks; rank r is the server of chunk r.

        rank 0   a0 a1 a2   push   a0 b0 c0 ─ add ─► s0   pull   s0 s1 s2
        rank 1   b0 b1 b2   ────►  a1 b1 c1 ─ add ─► s1   ────►  s0 s1 s2
        rank 2   c0 c1 c2          a2 b2 c2 ─ add ─► s2          s0 s1 s2

    Every element is ((x_0 + x_1) + x_2) + …: the bits are those of `star_allreduce`.
    At most 2(p-1) messages of a rank, 2(p-1)n elements over all ranks:
    2(p-1)α + 2(p-1)/p·nβ + (p-1)/p·nγ.
    With `result`, an array of a narrower type that has the terms, terms and sums are
    sent in its type; sums are rounded once.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    if comm.size == 1:
        return
    where = chunks(len(buffer), comm.size)
    sums = copied(buffer, result)
    parts = [sums[part] for part in where]
    own = parts[comm.rank]
    terms = np.empty((comm.size, len(own)), own.dtype)
    send_parts(comm, parts, list(terms))
    if result is not None:
        terms = terms.view(result.dtype).astype(buffer.dtype)
    for term in terms[1:]:  # order matters: in rank order, as in a serial sum
        comm.Reduce_local(term, terms[0], op)
    buffer[where[comm.rank]] = terms[0]
    copied(buffer, result, where[comm.rank])
    send_parts(comm, [own] * comm.size, parts)


def two_shot(
    size: int, length: int, itemsize: int = 4, segment: int = SEGMENT
) -> Iterator[Round]:
    """Yield the rounds of `server_allreduce`, which has no segments.

    Round k: rank r sends to r + k and receives from r - k. All messages of a half are
    in transit at once; the rounds are the order in which a port sends them.
    """
    ranks, nbytes = np.arange(size), chunk_bytes(length, size, itemsize)
    for reduces in (True, False):
        for k in range(1, size):
            dest = (ranks + k) % size
            sizes = nbytes[dest if reduces else ranks]
            sent = sizes > 0
            reductions = size - 1 if reduces and k == size - 1 else 0
            if sent.any():
                yield Round(ranks[sent], dest[sent], sizes[sent], reductions)


def two_shot_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of `server_allreduce`, an upper bound.

    It is exact on the uniform network if all chunks are equal.
    """
    chunk = -(-job.length // job.size)
    message = send_seconds(job, rates, chunk)
    reduced = rates.gamma * chunk * job.itemsize
    return (job.size - 1) * (2 * message + reduced) if job.length else 0.0
