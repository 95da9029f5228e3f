"""Ways to fail on real ranks: the argument names one."""

import os
import signal
import sys
import threading
import time

import numpy as np

from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE, allreduce_async
from dml.wire.comm.abort import refuse
from dml.wire.comm.buffers import allocate
from dml.wire.comm.mpi import world
from dml.wire.comm.tags import Tag

QUICK = 0.5  # seconds a watchdog waits here


def hear(comm, source):
    """Wait for a message that nobody sends."""
    comm.Recv(np.zeros(12, np.float32), source, Tag.RING)


def one_raises():
    comm = world()
    if comm.rank == 1:
        raise KeyError("lost by rank 1")
    hear(comm, 1)


def one_raises_from_another_error():
    comm = world()
    if comm.rank == 1:
        try:
            {}["first"]
        except KeyError as error:
            raise RuntimeError("second") from error
    hear(comm, 1)


def one_raises_in_a_thread():
    comm = world()
    if comm.rank == 1:

        def work():
            raise KeyError("lost by rank 1")

        threading.Thread(target=work).start()
    hear(comm, (comm.rank + 1) % comm.size)


def one_raises_while_driven():
    comm = world()
    bad = np.zeros(8)[::2] if comm.rank == 1 else np.zeros(4)
    allreduce_async(comm, bad, allreduce=ALLREDUCE["ring"], thread=True).wait()


def one_raises_while_others_meet():
    comm = world()
    buffer = allocate(comm, 100_000)
    ALLREDUCE["shared"](comm, buffer)
    if comm.rank == 1:
        raise KeyError("lost by rank 1")
    ALLREDUCE["shared"](comm, buffer)


def all_raise():
    raise KeyError(f"lost by rank {world().rank}")


def one_leaves():
    comm = world(watchdog=0.5)
    if comm.rank == 1:
        sys.exit(3)
    hear(comm, 1)


def one_is_killed():
    comm = world()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    hear(comm, 1)


def one_is_killed_while_others_meet():
    comm = world()
    buffer = allocate(comm, 100_000)
    ALLREDUCE["shared"](comm, buffer)
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    ALLREDUCE["shared"](comm, buffer)


def all_wait_to_hear():
    comm = world(watchdog=QUICK)
    hear(comm, (comm.rank + 1) % comm.size)


def all_wait_to_send():
    comm = world(watchdog=QUICK)
    comm.Send(np.zeros(1 << 20, np.uint8), (comm.rank + 1) % comm.size, Tag.TREE)


def all_wait_to_exchange():
    comm = world(watchdog=QUICK)
    here, there = np.zeros(3), np.zeros(12, np.float32)
    ahead, behind = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    comm.Sendrecv(here, ahead, Tag.RING, there, behind, Tag.TREE)


def all_wait_for_a_request():
    comm = world(watchdog=QUICK)
    request = comm.Irecv(
        np.zeros(12, np.float32), (comm.rank + 1) % comm.size, Tag.STAR
    )
    request.Wait()


def all_wait_for_one_under_way():
    comm = world(watchdog=QUICK)
    if comm.rank != 1:
        handle = allreduce_async(comm, np.zeros(6), allreduce=ALLREDUCE["ring"])
        handle.poll()
        handle.wait()
    time.sleep(60)


def one_waits_for_a_barrier():
    comm = world(watchdog=QUICK)
    if comm.rank == 0:
        comm.Barrier()
    time.sleep(60)


def one_waits_to_meet():
    comm = world(watchdog=QUICK)
    buffer = allocate(comm, 100_000)
    ALLREDUCE["shared"](comm, buffer)
    if comm.rank == 0:
        ALLREDUCE["shared"](comm, buffer)
    time.sleep(60)


def one_waits_in_a_group():
    """A group is as well watched as the world."""
    comm = world(watchdog=QUICK)
    group = comm.Split(comm.rank % 2, 0)
    if comm.rank == 0:
        hear(group, 0)
    time.sleep(60)


def one_waits_for(call):
    """Only rank 0 makes a call that all must make."""

    def wait():
        comm = world(watchdog=QUICK)
        comm.platform.hosts()
        if comm.rank == 0:
            call(comm)
        time.sleep(60)

    return wait


def nobody_waits_for_long():
    """Slow work and many quick calls are no reason to speak."""
    comm = world(watchdog=QUICK)
    time.sleep(3 * QUICK)
    until = time.monotonic() + 3 * QUICK
    more = np.ones(1)
    while more[0]:
        comm.Barrier()
        more[0] = time.monotonic() < until
        ALLREDUCE["ring"](comm, more, np.minimum)


def all_refuse():
    refuse(world(), "expected a length, got -1; pass --length=1")


def one_refuses():
    comm = world()
    if comm.rank == 1:
        refuse(comm, "expected a file, got none; pass --file=x")
    hear(comm, 1)


def one_refuses_while_others_meet():
    comm = world()
    buffer = allocate(comm, 100_000)
    ALLREDUCE["shared"](comm, buffer)
    if comm.rank == 1:
        refuse(comm, "expected a file, got none; pass --file=x")
    ALLREDUCE["shared"](comm, buffer)


def a_bad_buffer_is_refused_by_its_rank():
    comm = world()
    buffer = np.zeros(8)[::2] if comm.rank == 1 else np.zeros(4)
    try:
        ALLREDUCE["ring"](comm, buffer)
    except BadInput as error:
        refuse(comm, str(error))


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


WAYS = {
    way.__name__: way
    for way in list(globals().values())
    if callable(way) and getattr(way, "__module__", "") == __name__
}
WAYS |= {
    "Dup": one_waits_for(lambda comm: comm.Dup()),
    "Split": one_waits_for(lambda comm: comm.Split(0, 0)),
    "shared_window": one_waits_for(lambda comm: comm.platform.shared_window(64)),
    "Allreduce": one_waits_for(lambda comm: comm.Allreduce(None, np.zeros(3))),
}

if __name__ == "__main__":
    WAYS[sys.argv[1]]()
