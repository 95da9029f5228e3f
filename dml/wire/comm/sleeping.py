"""A real communicator that sleeps while it waits: for more ranks than cores.

MPI's busy waiting would take the core of another rank. Between two polls a rank sleeps
for a tenth of the time that it has waited so far, at least POLL_SECONDS and at most
`longest`. A message is noticed up to this time late.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dml.types import ANY, Comm, Op
from dml.wire.comm.mpi import POLL_SECONDS, SLEEP_SHARE
from dml.wire.comm.plain import as_comm
from dml.wire.comm.polling import Call, Polled, Polling
from dml.wire.comm.wrapper import Wrapper


def sleep_if_oversubscribed(comm: Comm) -> Comm:
    """Wrap the communicator in Sleeping if any host has more ranks than cores."""
    comm = as_comm(comm)
    hosts = comm.platform.hosts()
    ranks = hosts.count(hosts[comm.rank])
    oversubscribed = np.array([ranks > len(os.sched_getaffinity(0))], np.int64)
    comm.Allreduce(None, oversubscribed, np.maximum)
    return Sleeping(comm) if oversubscribed[0] else comm


class Sleeping(Polling):
    """Wraps a communicator, which may be a wrapper.

    Args:
      comm: The communicator.
      longest: Longest sleep between two polls, in seconds.
    """

    def __init__(self, comm: Comm, longest: float = POLL_SECONDS):
        super().__init__(comm)
        self.longest = longest
        innermost: Any = self.comm
        while isinstance(innermost, Wrapper):
            innermost = innermost.comm
        self.watched = innermost  # its `call` is read by the watchdog

    def wrap(self, comm: Comm) -> "Sleeping":
        return Sleeping(comm, self.longest)

    def wait(self, done: Callable[[], bool], call: Call) -> None:
        """Poll until done() is true; `call` describes the wait to the watchdog."""
        if done():
            return
        self.watched.call = call
        begun, waited = time.perf_counter(), 0.0
        while True:
            time.sleep(min(max(POLL_SECONDS, SLEEP_SHARE * waited), self.longest))
            if done():
                break
            waited = time.perf_counter() - begun
        self.watched.call = None

    def Probe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> None:
        call = ("Probe", "source", source, tag, None)
        self.wait(lambda: self.comm.Iprobe(source, tag, status), call)

    def Waitany(self, requests: Sequence[Polled], status: Any = None) -> int:
        """Wait for the first completed request; return its index, -1 without one."""
        active = [k for k, request in enumerate(requests) if not request.complete]
        completed = -1

        def done() -> bool:
            nonlocal completed
            # stop at the first completed request: Test returns its status only once
            for k in active:
                if requests[k].Test(status):
                    completed = k
                    return True
            return False

        if active:
            self.wait(done, ("Waitany", "requests", len(active), 0, None))
        return completed

    def Barrier(self) -> None:
        barrier = self.watched.Ibarrier()
        self.wait(barrier.Test, ("Barrier", "size", self.size, 0, None))

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = np.add) -> None:
        self.Barrier()  # sleeps until all ranks have entered
        self.comm.Allreduce(sendbuf, recvbuf, op)
