"""A communicator that delays messages as links of limited bandwidth do."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from dml.types import ANY, WITHDRAWN, Comm, Status
from dml.types.messages import dest_of, memory_of, tag_of
from dml.wire.comm.metered import uncounted
from dml.wire.comm.polling import ByRequests
from dml.wire.comm.wrapper import WrappedRequest, report

SEND, RECEIVE = 0, 1  # the two directions of a full-duplex port


class Throttled(ByRequests):
    """Wraps a communicator: each rank has a full-duplex port of limited bandwidth.

        sender's port      |--0--|--1--|           a message of m bytes occupies both
        receiver's port       |--0--|--1--|        ports for α + mβ seconds

    A message leaves at the earliest time at which the sender's port has sent it. It is
    received at that time, or later if the receiver's port was occupied. The message
    itself is sent at once, and a second message contains the time at which it leaves,
    so that the delivery is late only by the error of a sleep. Ranks sleep until that
    time; virtual clocks advance. All ranks must run on one host, as they need one
    clock.

    A port is a token bucket: after idle time it sends up to `burst` bytes at once, so
    that a rank that wakes up late does not lose bandwidth. Probes, Barrier, Allreduce
    and shared windows are not throttled.

    Args:
      comm: The communicator; collective, because it is duplicated.
      beta: Seconds per byte.
      alpha: Seconds per message.
      burst: Size of the bucket in bytes.
      ports: Times until which the two directions are occupied; None: not occupied.
    """

    def __init__(
        self,
        comm: Comm,
        beta: float,
        alpha: float = 0.0,
        burst: int = 0,
        ports: list[float] | None = None,
    ):
        super().__init__(comm)
        self.beta, self.alpha, self.burst = beta, alpha, burst
        self.ports = [0.0, 0.0] if ports is None else ports
        self.times = uncounted(self.comm).Dup()  # messages with times

    def wrap(self, comm: Comm) -> "Throttled":
        return Throttled(comm, self.beta, self.alpha, self.burst, self.ports)

    def Free(self) -> None:
        self.times.Free()
        super().Free()

    def seconds(self, nbytes: int) -> float:
        """Return the time for which a message occupies a port."""
        return self.alpha + self.beta * nbytes

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> "Departure":
        dest, tag, buf = dest_of(dest, self.size), tag_of(tag), memory_of(buf)
        earliest = self.Wtime() - self.beta * self.burst
        begins = max(earliest, self.ports[SEND])
        duration = self.seconds(buf.nbytes) if dest >= 0 else 0.0
        leaves = np.array([begins + duration])
        self.ports[SEND] = float(leaves[0])
        requests = [
            self.times.Isend(leaves, dest, tag),
            self.comm.Isend(buf, dest, tag),
        ]
        return Departure(self, requests, leaves)

    def Irecv(self, buf: Any, source: int = ANY, tag: int = ANY) -> "Arrival":
        return Arrival(self, self.comm.Irecv(buf, source, tag))

    def Waitany(self, requests: Sequence[Any], status: Any = None) -> int:
        """Wait for the first completed request; return its index, -1 without one."""
        while active := [k for k, each in enumerate(requests) if not each.complete]:
            passed = [k for k in active if requests[k].finished(Status())]
            if passed:
                first = min(passed, key=lambda k: requests[k].due)
                requests[first].Wait(status)
                return first
            if not self.platform.virtual:  # a Test of virtual ranks pauses
                self.platform.pause()
        return -1

    def sleep_until(self, due: float) -> None:
        """Wait until a time of the clock."""
        remaining = due - self.Wtime()
        if remaining > 0:
            self.platform.compute(remaining)


class Transfer(WrappedRequest, ABC):
    """A message in transit, which ends at the time `due`."""

    complete = False
    due = 0.0

    def Wait(self, status: Any = None) -> bool:
        if not self.complete:
            self.finish(status)
            self.comm.sleep_until(self.due)
            self.complete = True
        return True

    def Test(self, status: Any = None) -> bool:
        if not self.complete and self.finished(status):
            self.complete = self.comm.Wtime() >= self.due
        return self.complete

    @abstractmethod
    def finish(self, status: Any) -> None:
        """Wait for the messages of the wrapped communicator."""

    @abstractmethod
    def finished(self, status: Any) -> bool:
        """Return whether the messages of the wrapped communicator are complete."""


class Departure(Transfer):
    """A send; complete when the message has left the port."""

    def __init__(self, comm: Throttled, requests: list[Any], leaves: np.ndarray):
        super().__init__(comm, requests[-1])
        self.requests, self.leaves = requests, leaves  # must not be freed
        self.due = float(leaves[0])

    def finish(self, status: Any) -> None:
        for request in self.requests:
            request.Wait()

    def finished(self, status: Any) -> bool:
        self.requests = [request for request in self.requests if not request.Test()]
        return not self.requests


class Arrival(Transfer):
    """A receive; complete when the message has passed the port."""

    status: Any = None  # of the message, after it has arrived

    def finish(self, status: Any) -> None:
        if self.status is None:
            message = Status()
            self.request.Wait(message)
            self.arrive(message)
        self.report(status)

    def finished(self, status: Any) -> bool:
        if self.status is None:
            message = Status()
            if not self.request.Test(message):
                return False
            self.arrive(message)
        self.report(status)
        return True

    def arrive(self, message: Status) -> None:
        """Occupy the port from the end of earlier messages, or later."""
        self.status = message
        if message.count == WITHDRAWN or message.source < 0:  # or PROC_NULL
            return
        leaves, ports = np.empty(1), self.comm.ports
        self.comm.times.Recv(leaves, message.source, message.tag)
        seconds = self.comm.seconds(max(message.count, 0))
        self.due = ports[RECEIVE] = max(float(leaves[0]), ports[RECEIVE] + seconds)

    def report(self, status: Any) -> None:
        report(self.status, status)
