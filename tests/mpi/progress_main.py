"""Two all-reduces under way at once on real ranks: the argument names which ones."""

import sys

import numpy as np

from dml.wire.messages import ALLREDUCE, allreduce_async
from dml.wire.messages.comm import world
from tests.wire.messages.conformance import Case, digest, given

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
        comm.pause()
    for handle in turned:
        handle.wait()
        assert handle.poll()
    return [digest(buffer) for buffer in buffers]


def main(name):
    comm = world(watchdog=5)
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
        assert found == [want] * comm.size, f"{way}: other bits than blocking"
    # A blocking one on another communicator passes one under way; then wait alone.
    for thread in (False, True):
        other, buffer = comm.Dup(), np.full(3, comm.rank)
        late = np.full(50_000, comm.rank)
        ring = ALLREDUCE["ring"]
        handle = allreduce_async(other, late, allreduce=ALLREDUCE[name], thread=thread)
        ring(comm, buffer)
        handle.wait()
        total = comm.size * (comm.size - 1) // 2
        assert set(buffer.tolist()) == set(late.tolist()) == {total}
    if comm.rank == 0:
        sys.stdout.write(f"{name} is under way on {comm.size} ranks\n")


if __name__ == "__main__":
    main(sys.argv[1])
