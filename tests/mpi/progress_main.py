"""Two all-reduces under way at once on real ranks: the argument names which ones."""

import sys

import numpy as np

from dml.wire.messages import ALLREDUCE, allreduce_async
from dml.wire.messages.comm import world
from tests.wire.messages.conformance import Case, digest, given

WAYS = ("poll", "wait", "drive", "drive one, wait for the other")


def under_way(comm, name, way, cases):
    """Begin two on two communicators, each rank in its own order; end both."""
    comms = [comm.Dup(), comm.Dup()]
    buffers = [given(case)[comm.rank].copy() for case in cases]
    handles = [
        allreduce_async(one, buffer, allreduce=ALLREDUCE[name])
        for one, buffer in zip(comms, buffers, strict=True)
    ]
    turned = handles if comm.rank % 2 else handles[::-1]
    if way == "poll":
        while not all([handle.poll() for handle in turned]):
            comm.pause()
    if way == "wait":
        while not turned[0].poll():
            turned[1].poll()
    for handle in turned[: way.count("drive") * (1 + (way == "drive"))]:
        handle.drive()
    for handle in reversed(turned):
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
    for way in WAYS:
        found = comm.allgather(under_way(comm, name, way, cases))
        assert found == [want] * comm.size, f"{way}: other bits than blocking"
    # A blocking one on another communicator passes one under way.
    other, buffer = comm.Dup(), np.full(3, comm.rank)
    handle = allreduce_async(other, np.zeros(50_000), allreduce=ALLREDUCE[name])
    if comm.rank % 2:
        handle.drive()
    ALLREDUCE["ring"](comm, buffer)
    handle.wait()
    assert set(buffer.tolist()) == {comm.size * (comm.size - 1) // 2}
    if comm.rank == 0:
        sys.stdout.write(f"{name} is under way on {comm.size} ranks\n")


if __name__ == "__main__":
    main(sys.argv[1])
