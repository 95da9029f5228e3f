"""A real communicator that sleeps while it waits: for more ranks than cores.

MPI's busy waiting would take the core of another rank. A message is noticed up to LOOK
seconds late, or a tenth of the time waited before, at most `longest`.
"""

import os
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from dml.types import ANY, Comm, Op
from dml.wire.comm.mpi import LOOK
from dml.wire.comm.polling import Call, Polled, Polling
from dml.wire.comm.wrapper import Wrapper

TENTH = 0.1


def sleep_if_oversubscribed(comm: Comm) -> Comm:
    """Wrap the communicator in Napping if a host has more ranks than cores."""
    hosts = comm.platform.hosts()
    ranks = hosts.count(hosts[comm.rank])
    crowded = np.array([ranks > len(os.sched_getaffinity(0))], np.int64)
    comm.Allreduce(None, crowded, np.maximum)
    return Napping(comm) if crowded[0] else comm


class Napping(Polling):
    """Wraps a communicator, which may be wrapped already."""

    def __init__(self, comm: Comm, longest: float = LOOK):
        super().__init__(comm)
        self.longest = longest
        innermost: Any = comm
        while isinstance(innermost, Wrapper):
            innermost = innermost.comm
        self.watched = innermost  # the watchdog looks at its call

    def wrap(self, comm: Comm) -> "Napping":
        return Napping(comm, self.longest)

    def wait(self, done: Callable[[], bool], call: Call) -> None:
        """Wait until done() is true; the watchdog sees the call."""
        if done():
            return
        self.watched.call, begun = call, time.perf_counter()
        waited = 0.0
        while True:
            time.sleep(min(max(LOOK, TENTH * waited), self.longest))
            if done():
                break
            waited = time.perf_counter() - begun
        self.watched.call = None

    def Probe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> None:
        call = ("Probe", "source", source, tag, None)
        self.wait(lambda: self.comm.Iprobe(source, tag, status), call)

    def Waitany(self, requests: Sequence[Polled], status: Any = None) -> int:
        """Wait for the first completed request; return its index, -1 without one."""
        left = [(k, request) for k, request in enumerate(requests) if not request.over]
        result: list[int] = []

        def done() -> bool:
            # only up to the first: a Test that succeeds ends its request
            result.extend(islice((k for k, one in left if one.Test(status)), 1))
            return bool(result)

        if left:
            self.wait(done, ("Waitany", "requests", len(left), 0, None))
        return result[0] if result else -1

    def Barrier(self) -> None:
        barrier = self.platform.raw.Ibarrier()
        self.wait(barrier.Test, ("Barrier", "size", self.size, 0, None))

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = np.add) -> None:
        self.Barrier()  # sleeps until all ranks have entered
        self.comm.Allreduce(sendbuf, recvbuf, op)
