"""Collectives on the real world; the arguments name a function and its arguments."""

import sys
from functools import partial
from pathlib import Path

import numpy as np

from dml.conformance.comparisons import (
    check_behaviour,
    check_order,
    check_results,
    digest,
)
from dml.conformance.known_results import (
    DTYPES,
    LONG,
    Case,
    inputs,
    lengths,
    operations,
)
from dml.wire.collectives import (
    ALLREDUCE,
    AUTO,
    all_gather,
    all_to_all,
    allreduce_async,
    auto,
    broadcast,
    rates,
)
from dml.wire.comm.buffers import allocate, layout, release
from dml.wire.comm.wrapper import Wrapper
from dml.wire.reducers.fixed_point import order_free
from tests.wire.collectives.copied import copies
from tests.wire.collectives.spy import Spy
from tests.wire.comm import orders

MEGABYTES = 1_048_583  # words: several segments, several stages of shared memory
# The same on virtual ranks; those of AUTO choose by measured times on real ranks.
VIRTUAL = sorted(ALLREDUCE.keys() - {*AUTO, "native"})


class Apart(Wrapper):
    """A communicator whose ranks seem to be on hosts of their own."""

    def __init__(self, comm):
        super().__init__(comm)
        self.platform = comm.platform._replace(hosts=lambda: list(range(comm.size)))


def real(program, size, wrap=lambda comm: comm):
    """Run on all ranks of the world; give everyone the results of all."""
    from dml.wire.comm.mpi import world

    comm = world(watchdog=300)
    assert comm.size == size
    return comm.allgather(program(wrap(comm)))


def turns(size):
    """Each dtype at each length, the operations by turns: they never see the wire."""
    table = {dtype: operations(dtype) for dtype in DTYPES}
    found = []
    for i, n in enumerate(lengths(size)):
        kinds = [
            (dtype, ops[(i + j) % len(ops)])
            for j, (dtype, ops) in enumerate(table.items())
        ]
        found += [Case(size, n, *kind) for kind in kinds]
        found.append(Case(size, n, DTYPES[i % 3], "sum", True))
    return found


def reduced(comm, name, *case):
    """Return the hash of a sum by a blocking all-reduce."""
    buffer = inputs(Case(comm.size, *case, "sum", True))[comm.rank].copy()
    ALLREDUCE[name](comm, buffer)
    return digest(buffer)


def order_free_hash(comm):
    """Return the hash of an order-free sum, equal by every all-reduce and memory."""
    values, found = inputs(Case(comm.size, 3001, "float32", "sum", True)), set()
    registered = allocate(comm, 3001)
    for allreduce in ALLREDUCE.values():
        reducer = order_free(allreduce)
        for buffer in (np.empty(3001, np.float32), registered):
            buffer[:] = values[comm.rank]
            reducer.reduce(comm, buffer, reducer.init(layout(buffer)))
            found.add(digest(buffer))
    release(comm, registered)
    assert len(found) == 1
    return found.pop()


def check_nans(comm):
    """Assert that maxima and minima by every all-reduce keep the NaN of any rank."""
    for name in (*VIRTUAL, "native"):
        for op in (np.maximum, np.minimum):
            for root in range(comm.size):
                buffer = np.full(3, comm.rank, np.float32)
                buffer[1] = np.nan if comm.rank == root else comm.rank
                ALLREDUCE[name](comm, buffer, op)
                assert np.isnan(buffer).tolist() == [False, True, False], name


def agreed(comm):
    """All in which real ranks and virtual ones must agree: bits, and what is sent."""
    check_nans(comm)
    copies(comm)
    found = []
    for name in VIRTUAL:
        for n in (0, 1, comm.size + 1, 1009, 300_007):  # plain and segmented
            found.append(reduced(comm, name, n, "float32"))
        spy = Spy(comm)
        ALLREDUCE[name](spy, np.zeros(1009, np.float32))
        found.append((name, dict(spy.messages), dict(spy.bytes)))
    spy = Spy(comm)
    all_gather(spy, np.zeros(33))
    found.append(order_free_hash(comm))
    parts = [np.full(100_000 * dest, comm.rank) for dest in range(comm.size)]
    for source, part in enumerate(all_to_all(spy, parts)):
        assert part.tolist() == [source] * (100_000 * comm.rank)
    return [*found, dict(spy.bytes)]


def conforms(path):
    """Run a part of the conformance suite; write what all must agree in.

    Then run two all-reduces of each name at once.
    """
    from dml.wire.comm.mpi import world

    size = world(watchdog=300).size
    rates.PROBES = 1 << 10, 1 << 16  # that rates are found is enough
    rates.REPEATS = auto.REPEATS = 1
    hierarchical = ALLREDUCE["hierarchical"]
    tried = {name: ALLREDUCE[name] for name in orders.BASIC}
    for group in (1, 2):
        tried[f"hierarchical, {group}"] = partial(hierarchical, group=group)
    long = [("float32", "sum"), ("float16", "max"), ("int64", "product")]
    for name, allreduce in tried.items():
        check_results(allreduce, real, turns(size))
        check_results(allreduce, real, [Case(size, 100_003, *kind) for kind in long])
        check_behaviour(allreduce, real, size, orders.ORDERS.get(name))
    for name, order in orders.FURTHER.items():
        check_results(
            ALLREDUCE[name], real, [Case(size, n, "int64", "sum") for n in (7, 0)]
        )
        check_order(ALLREDUCE[name], real, size, order, (LONG,))
    for name in ("ring", "shared"):
        check_results(ALLREDUCE[name], real, [Case(size, MEGABYTES, "float32", "sum")])
    apart, in_pairs = partial(real, wrap=Apart), partial(hierarchical, group=2)
    check_results(in_pairs, apart, turns(size))
    check_behaviour(in_pairs, apart, size)
    every_rank = real(agreed, size)
    if world().rank == 0:
        Path(path).write_text(repr(every_rank))
        sys.stdout.write(f"all-reduces conform on {size} ranks\n")
    progresses()


# Two all-reduces under way at once.


def under_way(comm, name, threads, cases):
    """Begin two on two communicators; each rank polls them in its own order."""
    comms = [comm.Dup(), comm.Dup()]
    buffers = [
        inputs(Case(comm.size, *case, "sum", True))[comm.rank].copy() for case in cases
    ]
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


def progresses():
    """Assert the bits that a blocking one makes, whichever has a thread of its own."""
    from dml.wire.comm.mpi import world

    comm, cases = world(watchdog=300), [(70_003, "float32"), (301, "float64")]
    for name in sorted({*orders.BASIC} - {"native"}):
        want = [reduced(comm, name, *case) for case in cases]
        for threads in ((False, False), (True, True), (True, False)):
            found = comm.allgather(under_way(comm, name, threads, cases))
            assert found == [want] * comm.size, f"{name}, {threads}: other bits"
        lets_others_pass(comm, name)
        if comm.rank == 0:
            sys.stdout.write(f"{name} is under way on {comm.size} ranks\n")


def lets_others_pass(comm, name):
    """Let a blocking one on another communicator pass; then wait alone."""
    for thread in (False, True):
        other, buffer = comm.Dup(), np.full(3, comm.rank)
        late = np.full(50_000, comm.rank)
        handle = allreduce_async(other, late, allreduce=ALLREDUCE[name], thread=thread)
        ALLREDUCE["ring"](comm, buffer)
        handle.wait()
        total = comm.size * (comm.size - 1) // 2
        assert set(buffer.tolist()) == set(late.tolist()) == {total}, name


def large():
    """Send a message of more than 2^31 bytes from rank 1 to rank 0.

    It is zero but for a number in every 64 MB and at its end: pages that are only read
    take no memory.
    """
    from dml.wire.comm.mpi import world

    comm, length = world(watchdog=300), (1 << 29) + 5
    marks = [*range(1, length, 1 << 24), length - 1]
    buffer = (np.zeros if comm.rank else np.empty)(length, np.float32)
    if comm.rank == 1:
        buffer[marks] = np.arange(1, len(marks) + 1)
    broadcast(comm, buffer, 1)
    if comm.rank == 0:
        assert buffer[marks].tolist() == [*range(1, len(marks) + 1)]
        pieces = np.split(buffer, marks)
        assert sum(map(np.count_nonzero, pieces)) == len(marks)
        sys.stdout.write(f"{buffer.nbytes} bytes\n")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
