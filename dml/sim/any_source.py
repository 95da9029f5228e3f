"""Receives from ANY source: messages are matched in the order of virtual time.

A ──────●───────────►        Ranks run in any order, so A may post its message first.
B ──●───────────────►        The message of B has the earlier virtual time and becomes
    └──► Recv(ANY)           visible first, once no rank can send an earlier one.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dml.sim.process import describe_message, name_of
from dml.sim.transfer import VirtualRequest, poll
from dml.types import ANY, Status
from dml.types.messages import set_status

NOTHING = np.empty(0, np.uint8)


class Message(NamedTuple):
    """A message that is not received yet."""

    source: int
    tag: int
    start: float  # time at which it becomes visible, in s
    nbytes: int
    accept: Callable[[VirtualRequest], object]  # matches the message with a receive

    def matches(self, source: int, tag: int) -> bool:
        return source in (ANY, self.source) and tag in (ANY, self.tag)


class AnySource:
    """Queues of messages and receives of a rank that receives from ANY, or probes."""

    def __init__(self, comm: Any):
        self.comm, self.process = comm, comm.process
        self.visible: list[Message] = []  # visible messages, in order of send time
        self.receives: list[VirtualRequest] = []  # receives, in posting order
        self.probe_request: VirtualRequest | None = None

    def schedule(self, message: Message, rank: int, sent: tuple = ()) -> None:
        """Make a message visible once no rank can send an earlier one.

        Args:
          message: The message.
          rank: Rank of the sender; orders messages of equal time.
          sent: Orders messages of equal time and rank.
        """
        self.process.world.schedule(
            message.start, rank, partial(self.deliver, message), sent
        )

    def deliver(self, message: Message) -> None:
        """Match a message with the first matching receive, or queue it."""
        for i, request in enumerate(self.receives):
            if message.matches(request.peer, request.tag):
                del self.receives[i]
                return self.match(message, request)
        self.visible.append(message)
        if self.probe_request and message.matches(
            self.probe_request.peer, self.probe_request.tag
        ):
            self.answer(message, self.probe_request)

    def post(self, request: VirtualRequest) -> None:
        """Complete a receive with the first matching visible message, or queue it."""
        for i, message in enumerate(self.visible):
            if message.matches(request.peer, request.tag):
                del self.visible[i]
                return self.match(message, request)
        self.receives.append(request)

    def match(self, message: Message, request: VirtualRequest) -> None:
        request.record_match(message.source, message.tag, message.nbytes)
        message.accept(request)

    def first(self, source: int, tag: int) -> Message | None:
        """Return the first matching visible message; None if there is none."""
        matching = (message for message in self.visible if message.matches(source, tag))
        return next(matching, None)

    def unread(self) -> list[str]:
        """Describe the messages that were never received."""
        rank = self.comm.rank
        return [describe_message(m.nbytes, m.tag, m.source, rank) for m in self.visible]

    # A probe is a request without data. It completes α seconds after the send.

    def probe(self, source: int, tag: int, status: Status | None) -> None:
        probe_request = VirtualRequest(self.comm, "Probe(source", NOTHING, source, tag)
        self.process.order(self.process.clock)
        if first := self.first(source, tag):
            self.answer(first, probe_request)
        else:
            self.probe_request = probe_request
        probe_request.Wait(status)

    def answer(self, message: Message, probe_request: VirtualRequest) -> None:
        self.probe_request = None
        probe_request.record_match(message.source, message.tag, message.nbytes)
        probe_request.finish(max(probe_request.posted, message.start + self.comm.alpha))

    def iprobe(self, source: int, tag: int, status: Status | None) -> bool:
        """Return whether a matching message is visible at the rank's current clock."""
        polled = PolledProbe(self, source, tag)
        if not 0 <= polled.done <= self.process.clock:
            poll(self.process, polled)
        if not 0 <= polled.done <= self.process.clock:
            return False
        first = self.first(source, tag)
        if first and status is not None:
            set_status(status, first.source, first.tag, first.nbytes)
        return True


class PolledProbe(NamedTuple):
    """A polled probe; `done` is the time in s of the first matching message, or -1."""

    any_source: AnySource
    source: int
    tag: int

    @property
    def done(self) -> float:
        first = self.any_source.first(self.source, self.tag)
        return first.start + self.any_source.comm.alpha if first else -1.0

    def describe(self) -> str:
        return f"Iprobe(source={name_of(self.source)}, tag={name_of(self.tag)})"
