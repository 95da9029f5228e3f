"""Receives from anyone: who comes first is settled in the order of virtual time.

A ──────●───────────►        Both messages may be under way in the program's order
B ──●───────────────►        of running; the one that was sent first is shown first,
    └──► Recv(ANY)           when no rank can send anything earlier any more.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dml.sim.process import label, mail
from dml.sim.transfer import VirtualRequest, look_around, tell
from dml.types import ANY, Status

NOTHING = np.empty(0, np.uint8)


class Message(NamedTuple):
    """What waits to be received: `start` is when its receiver may see it."""

    source: int
    tag: int
    start: float
    nbytes: int
    accept: Callable[[VirtualRequest], object]  # let a receive take it

    def fits(self, source: int, tag: int) -> bool:
        return source in (ANY, self.source) and tag in (ANY, self.tag)


class Crowd:
    """The end of a communicator at which anyone may be received from."""

    def __init__(self, comm: Any):
        self.comm, self.process = comm, comm.process
        self.shown: list[Message] = []  # in the order in which they were sent
        self.wanted: list[VirtualRequest] = []  # in the order in which they were posted
        self.probing: VirtualRequest | None = None

    def come(self, message: Message, rank: int, sent: tuple = ()) -> None:
        """Put a message off until nothing earlier can come; rank is its sender's."""
        self.process.world.at(message.start, rank, partial(self.show, message), sent)

    def show(self, message: Message) -> None:
        """Give a message to the receive that was posted first, or keep it."""
        for i, request in enumerate(self.wanted):
            if message.fits(request.peer, request.tag):
                del self.wanted[i]
                return self.give(message, request)
        self.shown.append(message)
        if self.probing and message.fits(self.probing.peer, self.probing.tag):
            self.see(message, self.probing)

    def want(self, request: VirtualRequest) -> None:
        """Take the first message that is shown and fits, or wait for one."""
        for i, message in enumerate(self.shown):
            if message.fits(request.peer, request.tag):
                del self.shown[i]
                return self.give(message, request)
        self.wanted.append(request)

    def give(self, message: Message, request: VirtualRequest) -> None:
        request.take(message.source, message.tag, message.nbytes)
        message.accept(request)

    def first(self, source: int, tag: int) -> Message | None:
        fitting = (each for each in self.shown if each.fits(source, tag))
        return next(fitting, None)

    def unread(self) -> list[str]:
        """Describe the messages that wait here for ever."""
        me = self.comm.rank
        return [mail(each.nbytes, each.tag, each.source, me) for each in self.shown]

    # A probe sees a message α after it was sent; it is a request that takes nothing.

    def probe(self, source: int, tag: int, status: Status | None) -> None:
        probing = VirtualRequest(self.process, "Probe(source", NOTHING, source, tag)
        self.process.order(self.process.clock)
        if first := self.first(source, tag):
            self.see(first, probing)
        else:
            self.probing = probing
        probing.Wait(status)

    def see(self, message: Message, probing: VirtualRequest) -> None:
        self.probing = None
        probing.take(message.source, message.tag, message.nbytes)
        probing.finish(max(probing.posted, message.start + self.comm.alpha))

    def look(self, source: int, tag: int, status: Status | None) -> bool:
        """Say whether a message that fits can be seen by now."""
        glance = Glance(self, source, tag)
        if not 0 <= glance.done <= self.process.clock:
            look_around(self.process, glance)
        if not 0 <= glance.done <= self.process.clock:
            return False
        first = self.first(source, tag)
        if first and status is not None:
            tell(status, first.source, first.tag, first.nbytes)
        return True


class Glance(NamedTuple):
    """What Iprobe polls for."""

    crowd: Crowd
    source: int
    tag: int

    @property
    def done(self) -> float:
        first = self.crowd.first(self.source, self.tag)
        return first.start + self.crowd.comm.alpha if first else -1.0

    def describe(self) -> str:
        return f"Iprobe(source={label(self.source)}, tag={label(self.tag)})"
