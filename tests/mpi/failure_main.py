"""Ways to fail on real ranks: the argument names one."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np

from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE, allreduce_async
from dml.wire.comm.abort import exit_with_error
from dml.wire.comm.buffers import allocate
from dml.wire.comm.mpi import world
from dml.wire.comm.tags import Tag

QUICK = 0.5  # seconds a watchdog waits here
RING = ALLREDUCE["ring"]


def hear(comm, source):
    """Wait for a message that nobody sends."""
    comm.Recv(np.zeros(12, np.float32), source, Tag.RING)


def ahead(comm):
    return (comm.rank + 1) % comm.size


# Rank 1 does one of these while the others wait for it.


def lose(comm):
    raise KeyError("lost by rank 1")


def raise_from(comm):
    try:
        {}["first"]
    except KeyError as error:
        raise RuntimeError("second") from error


def lose_in_a_thread(comm):
    threading.Thread(target=lose, args=(comm,)).start()
    hear(comm, ahead(comm))


ACTS = {
    "raises": lose,
    "raises from another": raise_from,
    "raises in a thread": lose_in_a_thread,
    "leaves": lambda comm: sys.exit(3),
    "is killed": lambda comm: os.kill(os.getpid(), signal.SIGKILL),
    "refuses": lambda comm: exit_with_error(
        comm, "expected a file, got none; pass --file=x"
    ),
}


def rank_1(act, meets=False):
    """Rank 1 acts while the others wait for a message, or for it to meet them."""
    comm = world(watchdog=QUICK) if act == "leaves" else world()
    if meets:
        buffer = allocate(comm, 100_000)
        ALLREDUCE["shared"](comm, buffer)
    if comm.rank == 1:
        ACTS[act](comm)
    if meets:
        ALLREDUCE["shared"](comm, buffer)
    hear(comm, 1)


def killed_sender():
    """Rank 0 receives a message of a killed rank before mpirun ends rank 0."""
    comm = world()
    buffer = np.zeros(1 << 20)
    if comm.rank == 1:
        mpirun = os.getppid()
        os.kill(mpirun, signal.SIGSTOP)
        go_on = ["sh", "-c", f"sleep 0.5; kill -CONT {mpirun}"]
        child = subprocess.Popen(go_on, start_new_session=True)
        comm.Isend(buffer, 0, Tag.RING)
        os.kill(os.getpid(), signal.SIGKILL)
        child.wait()
    time.sleep(0.2)
    comm.Recv(buffer, 1, Tag.RING)


# Rank r waits in the call r; no message is received.
WAITS = (
    lambda comm: hear(comm, ahead(comm)),
    lambda comm: comm.Irecv(np.zeros(12, np.float32), ahead(comm), Tag.STAR).Wait(),
    lambda comm: comm.Sendrecv(
        *(np.zeros(3), comm.rank - 1, Tag.RING),
        *(np.zeros(12, np.float32), ahead(comm), Tag.TREE),
    ),
    lambda comm: comm.Send(np.zeros(1 << 20, np.uint8), ahead(comm), Tag.TREE),
)


def wait():
    comm = world(watchdog=QUICK)
    WAITS[comm.rank](comm)


def under_way(comm, group, buffer):
    handle = allreduce_async(comm, np.zeros(6), allreduce=RING)
    handle.poll()
    handle.wait()


def in_a_thread(comm, group, buffer):
    allreduce_async(comm, np.zeros(6), allreduce=RING, thread=True).wait()


# Only rank 0 makes one of these calls; rank 1 waits for another message from it.
CALLS = {
    "Barrier": lambda comm, group, buffer: comm.Barrier(),
    "Allreduce": lambda comm, group, buffer: comm.Allreduce(None, np.zeros(3)),
    "Dup": lambda comm, group, buffer: comm.Dup(),
    "Split": lambda comm, group, buffer: comm.Split(0, 0),
    "shared_window": lambda comm, group, buffer: comm.platform.shared_window(64),
    "under way": under_way,
    "meet": lambda comm, group, buffer: ALLREDUCE["shared"](comm, buffer),
    "in a thread": in_a_thread,
}


def alone(call):
    comm = world(watchdog=QUICK)
    comm.platform.hosts()
    group = comm.Split(comm.rank % 2, 0)  # as well watched as the world
    buffer = allocate(comm, 100_000)
    ALLREDUCE["shared"](comm, buffer)
    if comm.rank == 0:
        CALLS[call](comm, group, buffer)
    comm.Recv(np.zeros(12, np.float32), 0, Tag.STAR)


def pair():
    """Ranks 0 and 2 wait for each other, rank 1 computes, rank 3 waits for rank 1."""
    comm = world(watchdog=QUICK)
    group = comm.Split(comm.rank % 2, 0)
    if comm.rank == 1:
        time.sleep(3600)
    hear(group, 0 if comm.rank else 1)


def deserted(waiting, leaving):
    """A rank waits for one that ends."""
    comm = world(watchdog=QUICK)
    if comm.rank == int(waiting):
        hear(comm, int(leaving))


def slow():
    """Rank 1 sleeps and then holds the lock of the interpreter; the others wait."""
    comm = world(watchdog=QUICK)
    if comm.rank == 1:
        time.sleep(5 * QUICK)
        ctypes.PyDLL(None).usleep(int(5e6 * QUICK))
    RING(comm, np.zeros(6))
    comm.Barrier()


# Other ends.


def all_raise():
    raise KeyError(f"lost by rank {world().rank}")


def all_refuse():
    exit_with_error(world(), "expected a length, got -1; pass --length=1")


def a_bad_buffer(driven=False):
    """Rank 1 reduces what is not contiguous, in a thread or not."""
    comm = world()
    buffer = np.zeros(8)[::2] if comm.rank == 1 else np.zeros(4)
    if driven:
        allreduce_async(comm, buffer, allreduce=RING, thread=True).wait()
    try:
        RING(comm, buffer)
    except BadInput as error:
        exit_with_error(comm, str(error))


def nobody_waits_for_long():
    """Slow work and many quick calls print nothing."""
    comm = world(watchdog=QUICK)
    time.sleep(3 * QUICK)
    until = time.monotonic() + 3 * QUICK
    more = np.ones(1)
    while more[0]:
        comm.Barrier()
        more[0] = time.monotonic() < until
        RING(comm, more, np.minimum)


def all_end_well():
    """Leaves windows to the end, and says nothing."""
    comm = world()
    allocate(comm, 100_000)
    group = comm.Split(comm.rank % 2, 0)
    buffer = allocate(group, 300_000)
    buffer[:] = 1
    for name in ALLREDUCE:
        ALLREDUCE[name](group, buffer[:50_000])
        ALLREDUCE[name](comm, np.ones(100_000))


def windows_made_in_another_order():
    """Windows that ranks have made in different orders, as threads may, are freed."""
    comm = world(watchdog=300)
    for one in (comm.Dup(), comm.Dup()):
        allocate(one, 100)
    assert len(comm.windows) == 2
    if comm.rank:
        comm.windows = dict(reversed(list(comm.windows.items())))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
