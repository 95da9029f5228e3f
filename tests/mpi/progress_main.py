"""Two all-reduces under way at once on real ranks: those of every name in turn."""

import sys

import numpy as np

from dml.wire.collectives import ALLREDUCE, allreduce_async
from dml.wire.comm.mpi import world
from tests.wire.collectives.conformance import Case, digest, given

WAYS = {  # which of the two has a thread of its own
    "polls": (False, False),
    "threads": (True, True),
    "a thread and polls": (True, False),
}


def under_way(comm, name, threads, cases):
    """Begin two on two communicators; each rank polls them in its own order."""
    comms = [comm.Dup(), comm.Dup()]
    buffers = [given(case)[comm.rank].copy() for case in cases]
    handles = [
        allreduce_async(one, buffer, allreduce=ALLREDUCE[name], thread=thread)
        for one, buffer, thread in zip(comms, buffers, threads, strict=True)
    ]
    turned = handles if comm.rank % 2 else handles[::-1]
    while not all([handle.poll() for handle in turned]):
        comm.platform.pause()
    for handle in turned:
        handle.wait()
        assert handle.poll()
    return [digest(buffer) for buffer in buffers]


def main():
    comm = world(watchdog=5)
    for name in sorted(ALLREDUCE.keys() - {"native"}):
        agrees_with_blocking(comm, name)
        lets_others_pass(comm, name)
        if comm.rank == 0:
            sys.stdout.write(f"{name} is under way on {comm.size} ranks\n")


def agrees_with_blocking(comm, name):
    """Assert the bits that a blocking one makes, whoever has a thread."""
    cases = [
        Case(comm.size, 70_003, "float32", "sum", True),
        Case(comm.size, 301, "float64", "sum", True),
    ]
    want = []
    for case in cases:
        buffer = given(case)[comm.rank].copy()
        ALLREDUCE[name](comm, buffer)
        want.append(digest(buffer))
    for way, threads in WAYS.items():
        found = comm.allgather(under_way(comm, name, threads, cases))
        assert found == [want] * comm.size, f"{name}, {way}: other bits than blocking"


def lets_others_pass(comm, name):
    """Let a blocking one on another communicator pass; then wait alone."""
    for thread in (False, True):
        other, buffer = comm.Dup(), np.full(3, comm.rank)
        late = np.full(50_000, comm.rank)
        ring = ALLREDUCE["ring"]
        handle = allreduce_async(other, late, allreduce=ALLREDUCE[name], thread=thread)
        ring(comm, buffer)
        handle.wait()
        total = comm.size * (comm.size - 1) // 2
        assert set(buffer.tolist()) == set(late.tolist()) == {total}, name


if __name__ == "__main__":
    main()
