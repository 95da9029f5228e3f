"""Receives from ANY source: messages are matched in the order of virtual time.

A ──────●───────────►        Ranks run in any order, so A's message may be posted
B ──●───────────────►        first. B's has the earlier virtual time and becomes
    └──► Recv(ANY)           visible first, once no rank can send an earlier one.
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
    """A message that is not received yet; `start`: when it becomes visible, in s."""

    source: int
    tag: int
    start: float
    nbytes: int
    accept: Callable[[VirtualRequest], object]  # match it with a receive

    def fits(self, source: int, tag: int) -> bool:
        return source in (ANY, self.source) and tag in (ANY, self.tag)


class Crowd:
    """Queues of a communicator whose rank receives from ANY source, or probes."""

    def __init__(self, comm: Any):
        self.comm, self.process = comm, comm.process
        self.shown: list[Message] = []  # visible messages, by send time
        self.wanted: list[VirtualRequest] = []  # receives, in posting order
        self.probing: VirtualRequest | None = None

    def come(self, message: Message, rank: int, sent: tuple = ()) -> None:
        """Make a message of a rank visible once no earlier one can be sent."""
        self.process.world.at(message.start, rank, partial(self.show, message), sent)

    def show(self, message: Message) -> None:
        """Match a message with the first receive that fits, or queue it."""
        for i, request in enumerate(self.wanted):
            if message.fits(request.peer, request.tag):
                del self.wanted[i]
                return self.give(message, request)
        self.shown.append(message)
        if self.probing and message.fits(self.probing.peer, self.probing.tag):
            self.see(message, self.probing)

    def want(self, request: VirtualRequest) -> None:
        """Complete a receive with the first visible message that fits, or queue it."""
        for i, message in enumerate(self.shown):
            if message.fits(request.peer, request.tag):
                del self.shown[i]
                return self.give(message, request)
        self.wanted.append(request)

    def give(self, message: Message, request: VirtualRequest) -> None:
        request.take(message.source, message.tag, message.nbytes)
        message.accept(request)

    def first(self, source: int, tag: int) -> Message | None:
        fitting = (message for message in self.shown if message.fits(source, tag))
        return next(fitting, None)

    def unread(self) -> list[str]:
        """Describe the messages that were never received."""
        rank = self.comm.rank
        return [mail(m.nbytes, m.tag, m.source, rank) for m in self.shown]

    # A probe sees a message α seconds after it was sent. It is a request without data.

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
        """Return whether a message that fits is visible at the rank's current clock."""
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
    """A polled probe: `done` is when a message that fits becomes visible, else -1."""

    crowd: Crowd
    source: int
    tag: int

    @property
    def done(self) -> float:
        first = self.crowd.first(self.source, self.tag)
        return first.start + self.crowd.comm.alpha if first else -1.0

    def describe(self) -> str:
        return f"Iprobe(source={label(self.source)}, tag={label(self.tag)})"
