"""Requests of virtual sends and receives, and the copy into the receive buffer."""

from typing import Any, NamedTuple

import numpy as np

from dml.sim.failures import request_failure
from dml.sim.process import Process, describe
from dml.types import (
    ANY,
    PROC_NULL,
    TOO_LONG,
    WITHDRAWN,
    BadInput,
    RankFailed,
    Status,
)
from dml.types.messages import memory_of, set_status, truncated

ISEND = "Isend(dest"  # name of the one send that does not block


class VirtualRequest:
    """A send or receive; `done` is its completion time in s, -1 before it is known."""

    __slots__ = (
        *("active", "buffer", "comm", "count", "done", "error", "lost", "matched"),
        *("name", "number", "peer", "posted", "process", "tag"),
    )

    def __init__(self, comm: Any, name: str, buffer: Any, peer: int, tag: int):
        self.process = process = comm.process
        self.comm, self.name, self.buffer = comm, name, buffer
        self.peer, self.tag, self.posted, self.done = peer, tag, process.clock, -1.0
        self.count, self.active = 0, True
        self.error: BadInput | None = None  # the message was longer than the buffer
        self.matched = self.lost = False  # with a message; the message cannot arrive
        self.number = -process.budget  # grows with every send

    @classmethod
    def null(cls, comm: Any, name: str, buffer: Any) -> "VirtualRequest":
        """Return the completed request of a send or a receive of PROC_NULL."""
        request = cls(comm, name, buffer, PROC_NULL, ANY)
        request.done = request.posted
        return request

    def finish(self, done: float) -> None:
        self.done = done
        process = self.process
        waits = process.waits
        if waits is self or (waits.__class__ is AnyOf and self in waits.requests):
            process.wake()
        else:
            process.world.progress()

    def record_match(self, source: int, tag: int, count: int) -> None:
        """Record the message that a receive is matched with, for its status."""
        self.peer, self.tag, self.count, self.matched = source, tag, count, True

    def failure(self, comm: Any) -> str:
        """Return why this request of `comm` cannot complete; "" if it can."""
        return request_failure(self) if self.comm is comm else ""

    def check(self) -> None:
        """Raise RankFailed if this request cannot complete."""
        if reason := request_failure(self):
            raise RankFailed(reason)

    def copy(self, data: np.ndarray, source: int) -> None:
        """Copy a message into the buffer; keep the error of one that is too long."""
        into = self.buffer
        try:
            if into.dtype is not data.dtype or into.size != data.size:
                raise ValueError
            into[...] = data  # which may be read-only
        except ValueError:
            self.error = copy_message(into, data, source)
            if self.error:
                self.process.world.cut.append(self)

    def interruptible(self) -> "AnyOf":
        """Return a wait for this request that another event may also end."""
        return AnyOf([self])

    def describe(self) -> str:
        return describe((self.name, self.buffer, self.peer, self.tag))

    def Wait(self, status: Any = None) -> bool:
        process = self.process
        if self.active:
            if self.done < 0:
                self.check()
                process.wait(self)
            if self.done > process.clock:
                process.clock = self.done
            self.active = False
            if process.clock >= process.end_time:
                process.end()
        if status is not None:
            count = TOO_LONG if self.error else self.count
            set_status(status, self.peer, self.tag, count)
        elif self.error:
            raise self.error
        return True

    def Cancel(self) -> None:
        """Withdraw a receive, unless a message is matched with it."""
        for group in self.process.world.groups:
            for comm in group:
                if comm.process is self.process and comm.withdraw(self):
                    self.process.open_receives -= 1
                    self.count, self.active = WITHDRAWN, False

    def Test(self, status: Any = None) -> bool:
        """Return whether the request is done; if not, yield to the other ranks."""
        process = self.process
        if not 0 <= self.done <= process.clock:
            poll(process, self)
        if not 0 <= self.done <= process.clock:
            self.check()
            return False
        return self.Wait(status)


class AnyOf(NamedTuple):
    """A wait that ends when any of several requests completes."""

    requests: list[VirtualRequest]

    def first(self) -> VirtualRequest:
        """Return the request with the earliest completion; if none is known, any."""
        done = [request for request in self.requests if request.done >= 0]
        return min(done or self.requests, key=lambda request: request.done)

    def failure(self, comm: Any) -> str:
        """Return why a request of `comm` cannot complete; "" if all can."""
        reasons = (request.failure(comm) for request in self.requests)
        return next(filter(None, reasons), "")

    def describe(self) -> str:
        return "any of " + ", ".join(request.describe() for request in self.requests)


def poll(process: Process, what: Any) -> None:
    """Poll once: process earlier events if there are any, else yield to other ranks."""
    world = process.world
    process.polled = True
    late = world.events and world.events[0][0] < process.clock
    if late or process.processed_until < process.clock:
        process.order(process.clock)
        if 0 <= what.done <= process.clock:
            return
    process.polls = what
    process.pause()
    process.polls = None


def set_null(status: Status | None) -> bool:
    """Set the status of a receive from PROC_NULL."""
    if status is not None:
        set_status(status, PROC_NULL, ANY, 0)
    return True


def occupy_in_port(
    receiver: Process, start: float, duration: float, request: Any
) -> float:
    """Occupy the receiver's in port; return the time of arrival.

    `request` is None for a buffered send. Sends that wait for their receive have a
    request: they occupy the out port one after another, independently of buffered
    sends, each from the time at which its receive is posted.
    """
    if start < receiver.in_free:
        start = receiver.in_free
    if request is not None and start < request.process.rendezvous_free:
        start = request.process.rendezvous_free
    done = start + duration
    receiver.in_free = done
    if request is not None:
        sender = request.process
        sender.waiting_sends -= 1
        sender.rendezvous_free = done
        request.finish(done)
    return done


def is_next(request: Any, both_posted: float) -> bool:
    """Return whether no other message can leave the sender's out port before this one.

    `both_posted` is the time at which send and receive are both posted. The result is
    also True if the sender posts no other send before this one is done.
    """
    if request is None:
        return True
    sender = request.process
    if sender.waiting_sends > 1 or both_posted < sender.rendezvous_free:
        return False
    blocks = request.name is not ISEND or sender.waits is request
    return blocks or both_posted < sender.clock


class Accepting(np.ndarray):
    """A receive buffer that calls accept(data, source) with the bytes of its message.

    Attributes:
      accept: Called with the memory of the sender, which it copies; returns an error,
        or None.
      expected: Bytes of the longest message, for reports.
    """

    accept: Any
    expected: int

    def __new__(cls, accept: Any, expected: int = 0) -> "Accepting":
        # not of uint8, the dtype of messages of bytes: `copy_message` is called
        self = np.empty(0, np.int8).view(cls)
        self.accept, self.expected = accept, expected
        return self

    def __array_finalize__(self, source: Any) -> None:
        self.accept = getattr(source, "accept", None)
        self.expected = getattr(source, "expected", 0)

    @property
    def nbytes(self) -> int:
        return self.expected


def copy_message(into: np.ndarray, data: np.ndarray, source: int) -> BadInput | None:
    """Copy a message to the start of a vector, by bytes as MPI does.

    Return an error, and copy nothing, if the message is too long or a buffer that a
    blocking call did not check is not valid.
    """
    if into.__class__ is Accepting:
        return into.accept(data.view(np.uint8), source)
    try:
        into = memory_of(into, writeable=True)
        data = memory_of(data)
    except BadInput as error:
        return error
    if data.nbytes > into.nbytes:
        return truncated(source)
    into.view(np.uint8)[: data.nbytes] = data.view(np.uint8)
    return None
