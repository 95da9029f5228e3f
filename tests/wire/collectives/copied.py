"""Broadcasts, all-gathers and all-to-alls in shared memory, on any fabric."""

import numpy as np

from dml.wire.collectives.shared_copies import (
    shared_all_gather,
    shared_all_to_all,
    shared_broadcast,
)
from dml.wire.comm.buffers import allocate, release
from dml.wire.plans.topology import SMALL, STAGE, chunks


def lengths(size):
    """Return multiples of `size`: none, small, and of more than two stages."""
    return [n - n % size for n in (0, size, SMALL // 8, SMALL // 2, 2 * STAGE // 8 + 9)]


def copies(comm):
    """Assert the results of calls that follow each other without another barrier."""
    rank, size = comm.rank, comm.size
    for length in lengths(size):
        buffers = [np.zeros(length), allocate(comm, length, np.float64)]
        for _ in range(2):
            for buffer in buffers:
                broadcasts(comm, buffer)
                gathers(comm, buffer)
                ranks = np.arange(size)
                buffer[:] = np.repeat(100.0 * rank + ranks, length // size)
                shared_all_to_all(comm, buffer)
                got = buffer.reshape(size, -1)
                assert (got == (100 * ranks + rank)[:, None]).all()
                comm.Barrier()  # the next values are written into registered memory
        release(comm, buffers[1])


def broadcasts(comm, buffer):
    ramp = np.arange(len(buffer))
    for root in {0, comm.size // 2, comm.size - 1}:
        buffer[:] = ramp + 1000 * comm.rank
        shared_broadcast(comm, buffer, root)
        assert np.array_equal(buffer, ramp + 1000 * root)


def gathers(comm, buffer):
    """Also of a part of the buffer, whose chunks have two lengths."""
    for part in (buffer, buffer[1:]):
        parts = chunks(len(part), comm.size)
        part[:] = -1
        part[parts[comm.rank]] = comm.rank
        shared_all_gather(comm, part)
        want = [np.full(p.stop - p.start, rank) for rank, p in enumerate(parts)]
        assert np.array_equal(part, np.concatenate(want))
        comm.Barrier()
