"""Broadcast, all-gather and all-to-all in shared memory on one host, without messages.

    registered buffers                       plain buffers, by pieces
    barrier                                  every rank copies what others need
    every rank copies what it needs          to its slot of a shared window; barrier;
    from the buffers of the others           every rank copies what it needs from the
    barrier                                  slots; the next piece has other slots

An element is copied once between registered buffers, twice by a slot. Small buffers
take slots in any case, with one barrier in place of two.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dml.types import Comm
from dml.wire.collectives.shared import next_slot, staging
from dml.wire.collectives.transposes.pairwise import equal_parts
from dml.wire.comm.buffers import flat, registered_views
from dml.wire.comm.plain import as_comm
from dml.wire.costs.allreduce import Job, Rates, barrier_seconds
from dml.wire.plans.topology import SMALL, STAGE, chunks

SWAP = 1 << 16  # bytes of a part that are swapped at once, which stay in the cache


def shared_broadcast(comm: Comm, buffer: np.ndarray, root: int = 0) -> None:
    """Copy the buffer of the rank `root` to all ranks.

        root │ x0 │ x1 │ x2 │      pieces; slots of the root: x0, barrier, x1, barrier …
                ▼    ▼    ▼        all others copy x0 while the root copies x1

    Registered buffers: 2 barriers. Plain ones: a barrier for each piece.

    Args:
      comm: The ranks.
      buffer: Buffer of the root, and where the others receive it.
      root: The rank that sends.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    if comm.size == 1:
        return
    if views := in_window(comm, buffer):
        barrier, buffers = views
        barrier()
        if comm.rank != root:
            buffer[...] = buffers[root]
        return barrier()
    for piece in pieces(len(buffer), STAGE // buffer.itemsize):
        slots = next_slot(staging(comm), buffer[piece])
        if comm.rank == root:
            slots[root][...] = buffer[piece]
        wait(comm)
        if comm.rank != root:
            buffer[piece] = slots[root]


def shared_all_gather(comm: Comm, buffer: np.ndarray) -> None:
    """Copy chunk r of the buffer of rank r to all ranks, for every r.

        rank 0 │ a │ . │ . │      every rank copies p-1 chunks from the buffers or
        rank 1 │ . │ b │ . │      slots of the others, that of the next rank first
        rank 2 │ . │ . │ c │

    Registered buffers: 2 barriers. Plain ones: a barrier for each piece of a chunk.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    rank, size = comm.rank, comm.size
    if size == 1:
        return
    parts = chunks(len(buffer), size)
    others = [(rank + k) % size for k in range(1, size)]
    if views := in_window(comm, buffer):
        barrier, buffers = views
        barrier()
        for other in others:
            buffer[parts[other]] = buffers[other][parts[other]]
        return barrier()
    longest = parts[0].stop
    for piece in pieces(longest, STAGE // buffer.itemsize):
        slots = next_slot(staging(comm), buffer[piece])
        terms = [buffer[part][piece] for part in parts]
        slots[rank][: len(terms[rank])] = terms[rank]
        wait(comm)
        for other in others:
            terms[other][...] = slots[other][: len(terms[other])]


def shared_all_to_all(comm: Comm, buffer: np.ndarray) -> None:
    """Send part q of the buffer to rank q; part q becomes that of rank q, in place.

        rank 0 │ a0 │ a1 │ a2 │     registered: each pair of ranks swaps two parts, and
        rank 1 │ b0 │ b1 │ b2 │     half of the pairs of a rank are swapped by it
        rank 2 │ c0 │ c1 │ c2 │     plain: rank 1 copies a1 and c1 from slots

    Registered buffers: 2 barriers. Plain ones: a barrier for each piece of all parts.

    Args:
      comm: The ranks.
      buffer: p parts of equal length, in rank order.
    """
    comm, parts = equal_parts(comm, buffer)
    rank, size = comm.rank, comm.size
    if size == 1:
        return
    if views := in_window(comm, parts.reshape(-1)):
        barrier, buffers = views
        barrier()
        for k in range(1, size // 2 + 1):
            other = (rank + k) % size
            swapped = parts[other], buffers[other].reshape(parts.shape)[rank]
            half = slice(None)
            if 2 * k == size:  # both ranks have this pair: the lower has its first half
                middle = parts.shape[1] // 2
                half = slice(middle) if rank < other else slice(middle, None)
            swap(swapped[0][half], swapped[1][half])
        return barrier()
    step = max(1, STAGE // (size * buffer.itemsize))
    for piece in pieces(parts.shape[1], step):
        block = parts[:, piece]
        slots = next_slot(staging(comm), np.empty(block.size, block.dtype))
        slots[rank].reshape(block.shape)[...] = block
        wait(comm)
        for other in range(size):
            if other != rank:
                block[other] = slots[other].reshape(block.shape)[rank]


def in_window(
    comm: Comm, buffer: np.ndarray
) -> tuple[Callable[[], None], Sequence[np.ndarray]] | None:
    """Return a barrier, and the buffers of all ranks; None if small or plain."""
    registered = registered_views(comm, buffer) if buffer.nbytes > SMALL else None
    if registered is None:
        return None
    window, buffers = registered
    return lambda: window.barrier(comm.platform.pause), buffers


def wait(comm: Comm) -> None:
    """Wait until all ranks have filled their slots.

    A rank fills the slot of piece k+2 after all have read that of piece k, because they
    read it before they wait for piece k+1.
    """
    staging(comm).window.barrier(comm.platform.pause)


def pieces(length: int, step: int) -> Iterator[slice]:
    """Divide `length` into pieces of at most `step` elements."""
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def swap(one: np.ndarray, other: np.ndarray) -> None:
    """Swap the elements of two arrays, by blocks that stay in the cache."""
    for block in pieces(len(one), max(1, SWAP // one.itemsize)):
        kept = one[block].copy()
        one[block] = other[block]
        other[block] = kept


def shared_broadcast_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of `shared_broadcast`: the root fills all slots."""
    copied = job.length * job.itemsize * rates.copy
    return barriers(job, job.length, rates) + copied * (1 if direct(job) else 2)


def shared_gather_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of `shared_all_gather`."""
    chunk = -(-job.length // job.size)
    copied = (job.size - 1 if direct(job) else job.size) * chunk * job.itemsize
    return barriers(job, chunk, rates) + copied * rates.copy


def shared_all_to_all_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of `shared_all_to_all`."""
    copied = job.length * job.itemsize * rates.copy
    if direct(job):
        return barriers(job, 0, rates) + (job.size - 1) / job.size * copied
    return barriers(job, job.length, rates) + 2 * copied


def barriers(job: Job, length: int, rates: Rates) -> float:
    """Return the seconds of barriers for `length` elements of a slot."""
    stages = -(-length * job.itemsize // STAGE)
    return (2 if direct(job) else stages) * barrier_seconds(job.size, rates)


def direct(job: Job) -> bool:
    """Return whether elements are copied between registered buffers."""
    return job.registered and job.length * job.itemsize > SMALL
