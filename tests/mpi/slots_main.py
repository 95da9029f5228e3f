"""Real ranks: servers, then values in shared memory.

These have the bits and the counts of messages.
"""

import sys

import numpy as np

from dml.strategies.server import server as strategy
from dml.strategies.server.workers import WorkerOptions
from dml.wire.comm import Metered
from dml.wire.comm.event_log import Log
from dml.wire.comm.mpi import world
from dml.wire.comm.recorded import Recorded
from dml.wire.plans.partition import partition
from dml.wire.server import header, slots
from dml.wire.server.consistency import Choice
from tests.mpi.server_main import SHORT, check, servers
from tests.strategies.server.small import program

EXACT = Choice(staleness=0)
MASKED = WorkerOptions(row_filter=lambda rows, grads: np.abs(grads).sum(1) > 1)
PREFETCHING = WorkerOptions(prefetch=True)
COLOCATED = {"servers": 0, "colocated": True}
CASES = [
    ("bsp", {}),
    ("bsp", {"servers": 2, "worker_options": MASKED}),
    ("bsp", {"servers": 2, "worker_options": PREFETCHING}),
    ("bsp", COLOCATED),
    ("bsp", {**COLOCATED, "worker_options": MASKED}),
    ("essp", {"servers": 2}),
    ("essp", COLOCATED),
    ("async", {"servers": 3}),  # one worker, so that the order of arrival is fixed
    ("async", {"servers": 3, "worker_options": MASKED}),
]


def main() -> None:
    comm = world(30)
    servers(comm)
    header.INLINE = slots.INLINE = 8  # bytes: nearly all values are large
    take, taken = slots.Slots.take, []

    def counted(self, size):
        slot = take(self, size)
        taken.append(bool(slot))
        return slot

    slots.Slots.take = counted
    split = partition(100, 1)
    assert slots.allocate(Metered(Recorded(comm, Log())), split, 1) is None
    for name, more in CASES:
        for dense in (False, True):
            if dense and "worker_options" in more:
                continue
            compare(comm, name, more | {"dense": dense}, taken)
    for name in ("async", "backup"):  # the order is not fixed
        check(comm, False, name, comm.size, Choice(), colocated=True)
    if comm.rank == 0:
        sys.stdout.write("all agree\n")


def compare(comm, name, more, taken) -> None:
    """Train by slots and by messages; compare the results on rank 0."""
    taken.clear()
    by_slots = program(comm, name, choice=EXACT, delays=SHORT, **more)
    assert any(taken) or not is_worker(comm, more), (name, more)
    allocate, strategy.allocate = strategy.allocate, lambda *arguments: None
    by_messages = program(comm, name, choice=EXACT, delays=SHORT, **more)
    strategy.allocate = allocate
    if comm.rank == 0:
        assert by_slots.table.tobytes() == by_messages.table.tobytes(), (name, more)
        words = by_slots.summary["words_sent"], by_messages.summary["words_sent"]
        if name != "essp":  # its words depend on when changed rows arrive
            assert words[0] == words[1], (name, more, words)


def is_worker(comm, more) -> bool:
    """Return whether this rank is a worker."""
    return more.get("colocated") or comm.rank < comm.size - more.get("servers", 1)


if __name__ == "__main__":
    main()
