"""All-to-alls of equal parts that send every part directly to its rank."""

from collections.abc import Iterator

import numpy as np

from dml.types import BadInput, Comm, Round
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.costs.allreduce import Job, Rates, send_seconds
from dml.wire.plans.schedules import full
from dml.wire.plans.topology import SEGMENT

WINDOW = 8  # messages of a rank in transit


def pairwise_all_to_all(comm: Comm, buffer: np.ndarray) -> None:
    """Send part q of the buffer to rank q; part q becomes that of rank q, in place.

        k = 1: 0►1 1►2 2►3 3►0      round k = 1 … p-1: rank r sends to r+k,
        k = 2: 0►2 1►3 2►0 3►1      receives from r-k (mod p)
        k = 3: 0►3 1►0 2►1 3►2

    p-1 rounds, (p-1)n elements over all ranks: (p-1)(α + n/p·β).

    Args:
      comm: The ranks.
      buffer: p parts of equal length, in rank order.
    """
    comm, sent, parts = rows(comm, buffer)
    rank, size, tag = comm.rank, comm.size, Tag.ALL_TO_ALL
    for k in range(1, size):
        dest, source = (rank + k) % size, (rank - k) % size
        comm.Sendrecv(sent[dest], dest, tag, parts[source], source, tag)


def window_all_to_all(comm: Comm, buffer: np.ndarray, window: int = WINDOW) -> None:
    """Send part q of the buffer to rank q; part q becomes that of rank q, in place.

        rounds 1 … w at once │ w+1 … 2w │ …      of the pairwise all-to-all

    The messages of w rounds are in transit together, so that no rank waits for one late
    partner; a bound on w limits memory and congestion.
    ⌈(p-1)/w⌉ rounds of w messages, (p-1)n elements over all ranks; a rank with one port
    takes (p-1)(α + n/p·β).

    Args:
      comm: The ranks.
      buffer: p parts of equal length, in rank order.
      window: Number w of messages.
    """
    comm, sent, parts = rows(comm, buffer)
    rank, size, tag = comm.rank, comm.size, Tag.ALL_TO_ALL
    for first in range(1, size, window):
        requests = []
        for k in range(first, min(first + window, size)):
            source = (rank - k) % size
            requests.append(comm.Irecv(parts[source], source, tag))
        for k in range(first, min(first + window, size)):
            dest = (rank + k) % size
            requests.append(comm.Isend(sent[dest], dest, tag))
        comm.Waitall(requests)


def rows(comm: Comm, buffer: np.ndarray) -> tuple[Comm, np.ndarray, np.ndarray]:
    """Return the communicator, a copy of the parts, and the parts as rows."""
    comm, parts = equal_parts(comm, buffer)
    return comm, parts.copy(), parts


def equal_parts(comm: Comm, buffer: np.ndarray) -> tuple[Comm, np.ndarray]:
    """Return the communicator, and the parts as rows."""
    comm, buffer = as_comm(comm), flat(comm, buffer)
    if len(buffer) % comm.size:
        raise BadInput(
            f"rank {comm.rank}: expected {comm.size} parts of equal length, got "
            f"{len(buffer)} elements; pass a multiple, or call all_to_all with a list"
        )
    return comm, buffer.reshape(comm.size, -1)


def pairwise(
    size: int, length: int, itemsize: int = 4, segment: int = SEGMENT
) -> Iterator[Round]:
    """Yield the rounds of `pairwise_all_to_all`, also the order of `window_all_to_all`.

    length: Elements of all parts of a rank.
    """
    ranks = np.arange(size)
    for k in range(1, size):
        nbytes = full(size, length // size * itemsize)
        yield Round(ranks, (ranks + k) % size, nbytes, False)


def pairwise_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of both all-to-alls; exact on the uniform network."""
    return (job.size - 1) * send_seconds(job, rates, job.length // job.size)
