"""PAT all-gather (Jeaugey 2025): binomial trees of all chunks, the longest hops first.

    p = 8, chunks that rank 0 sends     to 4: 0         step 0: 1 chunk, the farthest
                                        to 2: 0 4       step 1: 2 chunks
                                        to 1: 0 6 4 2   step 2: 4 chunks, the nearest

In the step with distance d rank r sends chunks r, r - 2d, r - 4d, … to rank r + d, the
reverse of Bruck's order, so that few chunks cross long links. A message has at most
MOST chunks, which bounds the memory of copies; a step with more is several messages.
In reverse it is a reduce-scatter. Any number of ranks, no folding.
⌈lg p⌉ rounds, and more where steps are divided, about p/MOST in total; (p-1)n elements
over all ranks: ⌈lg p⌉α + (p-1)/p·nβ; the reduce-scatter adds (p-1)/p·nγ.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from dml.types import Comm, Op, Round
from dml.wire.collectives.segments import SegmentedExchange
from dml.wire.collectives.steps.run import packed, unpack
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.costs.allreduce import Job, Rates, reduce_seconds, send_seconds
from dml.wire.plans.schedules import chunk_bytes, step
from dml.wire.plans.topology import SEGMENT, chunks, rounds

MOST = 16  # chunks of a message


def pat_all_gather(comm: Comm, buffer: np.ndarray) -> None:
    """Copy chunk r of the buffer of rank r to all ranks, for every r."""
    comm, buffer = as_comm(comm), flat(comm, buffer)
    rank, size, tag = comm.rank, comm.size, Tag.WINDOWS
    parts = chunks(len(buffer), size)
    for distance, behind in messages(size):
        dest, source = (rank + distance) % size, (rank - distance) % size
        received = pieces(parts, source, behind)
        incoming = packed(buffer, received)
        outgoing = packed(buffer, pieces(parts, rank, behind))
        comm.Sendrecv(outgoing, dest, tag, incoming, source, tag)
        unpack(incoming, buffer, received)


def pat_reduce_scatter(
    comm: Comm, buffer: np.ndarray, op: Op = np.add, segment: int = SEGMENT
) -> np.ndarray:
    """Reduce chunk r over all ranks into the buffer of rank r; return the chunk.

    The other chunks of the buffer are overwritten with partial sums. A rank adds the
    sums of the nearest rank first.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    rank, size = comm.rank, comm.size
    parts = chunks(len(buffer), size)
    segmented = SegmentedExchange(comm, buffer, op, Tag.WINDOWS, segment)
    for distance, behind in reversed(messages(size)):
        dest, source = (rank - distance) % size, (rank + distance) % size
        kept = pieces(parts, rank, behind)
        target = packed(buffer, kept)
        outgoing = packed(buffer, pieces(parts, dest, behind))
        segmented.exchange(outgoing, dest, target, source)
        unpack(target, buffer, kept)
    return buffer[parts[rank]]


def messages(size: int) -> list[tuple[int, range]]:
    """Return the distance of each message, and how far its chunks are behind a rank."""
    found = []
    for k in reversed(range(rounds(size))):
        distance = 1 << k
        behind = range(0, size - distance, 2 * distance)
        starts = range(0, len(behind), MOST)
        found += [(distance, behind[start : start + MOST]) for start in starts]
    return found


def pieces(parts: Sequence[slice], rank: int, behind: range) -> list[slice]:
    """Return the memory of the chunks of a message that a rank sends."""
    return [parts[(rank - k) % len(parts)] for k in behind]


def pat_gather_rounds(size: int, length: int, itemsize: int = 4) -> Iterator[Round]:
    """Yield the rounds of `pat_all_gather`."""
    ranks, owned = np.arange(size), chunk_bytes(length, size, itemsize)
    for distance, behind in messages(size):
        sent = (ranks[:, None] - np.array(behind)) % size
        yield Round(ranks, (ranks + distance) % size, owned[sent].sum(1), False)


def pat_scatter_rounds(
    size: int, length: int, itemsize: int = 4, segment: int = SEGMENT
) -> Iterator[Round]:
    """Yield the rounds of `pat_reduce_scatter`."""
    segment = step(itemsize, segment)
    for entry in reversed(list(pat_gather_rounds(size, length, itemsize))):
        yield Round(entry.dest, entry.source, entry.nbytes, True, segment)


def lengths(job: Job) -> list[int]:
    """Return the elements of each message, of the longest chunks."""
    chunk = -(-job.length // job.size)
    return [len(behind) * chunk for _, behind in messages(job.size)]


def pat_gather_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of `pat_all_gather`; for unequal chunks an upper bound."""
    return sum(send_seconds(job, rates, length) for length in lengths(job))


def pat_scatter_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of `pat_reduce_scatter`; for unequal chunks an upper bound."""
    return sum(reduce_seconds(job, rates, length) for length in lengths(job))
