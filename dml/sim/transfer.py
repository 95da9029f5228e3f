"""A message of the virtual world: how it waits, travels and lands in a buffer."""

from typing import Any, NamedTuple

import numpy as np

from dml.sim.process import Process, described
from dml.types import BadInput, Status

ISEND = "Isend(dest"  # of the sends, the one that does not block


class VirtualRequest:
    """A send or receive under way; `done` is when its buffer is free, -1 before."""

    __slots__ = (
        *("active", "buffer", "count", "done", "name", "number", "peer", "posted"),
        *("process", "tag"),
    )

    def __init__(self, process: Process, name: str, buffer: Any, peer: int, tag: int):
        self.process, self.name, self.buffer = process, name, buffer
        self.peer, self.tag, self.posted, self.done = peer, tag, process.clock, -1.0
        self.count, self.active = 0, True
        self.number = -process.left  # grows with every send

    def finish(self, done: float) -> None:
        self.done = done
        process = self.process
        waits = process.waits
        if waits is self or (waits.__class__ is AnyOf and self in waits.requests):
            process.wake()
        else:
            process.world.progress()

    def take(self, source: int, tag: int, count: int) -> None:
        """Note whose message it is that came."""
        self.peer, self.tag, self.count = source, tag, count

    def alone(self) -> "AnyOf":
        """Itself, to wait for no longer than until something else happens."""
        return AnyOf([self])

    def describe(self) -> str:
        return described((self.name, self.buffer, self.peer, self.tag))

    def Wait(self, status: Any = None) -> bool:
        process = self.process
        if self.active:
            if self.done < 0:
                process.wait(self)
            if self.done > process.clock:
                process.clock = self.done
            self.active = False
            if process.clock >= process.ends:
                process.end()
        if status is not None:
            tell(status, self.peer, self.tag, self.count)
        return True

    def Test(self, status: Any = None) -> bool:
        """Say whether it is done by now; if not, let the other ranks run first."""
        process = self.process
        if not 0 <= self.done <= process.clock:
            look_around(process, self)
        if not 0 <= self.done <= process.clock:
            return False
        return self.Wait(status)


class AnyOf(NamedTuple):
    """What a rank waits for that any of its requests sets free."""

    requests: list[VirtualRequest]

    def first(self) -> VirtualRequest:
        """The one that is done first; any, if none is done."""
        done = [request for request in self.requests if request.done >= 0]
        return min(done or self.requests, key=lambda request: request.done)

    def describe(self) -> str:
        return "any of " + ", ".join(each.describe() for each in self.requests)


def look_around(process: Process, what: Any) -> None:
    """Let happen what happens before now, or else let the others go first."""
    world = process.world
    process.asked = True
    late = world.later and world.later[0][0] < process.clock
    if late or process.settled < process.clock:
        process.order(process.clock)
        if 0 <= what.done <= process.clock:
            return
    process.polls = what
    process.pause()
    process.polls = None


def tell(status: Status, source: int, tag: int, count: int) -> None:
    status.source, status.tag, status.count = source, tag, count


def arrive(receiver: Process, start: float, took: float, request: Any) -> float:
    """Take a message through the receiver's in port; return when it has arrived.

    A request is that of a sender that has waited for its receive: its own kind hold
    the out port one after another, from when they are met, beside what is buffered.
    """
    if start < receiver.in_free:
        start = receiver.in_free
    if request is not None and start < request.process.met_free:
        start = request.process.met_free
    done = start + took
    receiver.in_free = done
    if request is not None:
        sender = request.process
        sender.offers -= 1
        sender.met_free = done
        request.finish(done)
    return done


def settled(request: Any, meets: float) -> bool:
    """Say whether nothing can come before a message that is met then, out of its port.

    That is so where its sender does nothing before it is done.
    """
    if request is None:
        return True
    sender = request.process
    if sender.offers > 1 or meets < sender.met_free:
        return False
    blocks = request.name is not ISEND or sender.waits is request
    return blocks or meets < sender.clock


def fill(into: np.ndarray, data: np.ndarray, rank: int, source: int, tag: int) -> None:
    """Copy a message into a receive buffer, by bytes as MPI does."""
    if into.nbytes == data.nbytes and into.dtype is data.dtype and into.ndim == 1:
        into[...] = data
        return
    if data.nbytes > into.nbytes:
        raise BadInput(
            f"rank {rank}: message truncated: {data.nbytes} bytes from rank {source} "
            f"({tag=}) do not fit into a buffer of {into.nbytes}; pass --check to name "
            "ranks whose lengths or dtypes differ"
        )
    bytes_of(into)[: data.nbytes] = bytes_of(data)


def bytes_of(buffer: np.ndarray) -> np.ndarray:
    return buffer.reshape(-1).view(np.uint8)
