"""A communicator that records what only this run settles: whose message came first."""

from collections.abc import Sequence
from typing import Any

from dml.types import ANY, Status
from dml.wire.messages.events import Kind
from dml.wire.messages.ordered import Glimpse, Ordered, OrderedRequest
from dml.wire.messages.wrapper import bare


class Recorded(Ordered):
    """Wraps a communicator, and so what it splits; its events go into a log.

        log = Log();  program(Recorded(comm, log));  every = log.collect(comm)
        log = Log(every[comm.rank]);  program(Replayed(comm, log));  log.finish()

    Events are the source and tag that ANY stood for (of an Irecv where it is posted,
    as MPI fills receives in that order), what Iprobe, Test, Waitany and compute(unless)
    found, and what the program notes. The rest follows: messages never overtake.
    """

    replays = False

    def named(self, kind: Kind, source: int, tag: int) -> tuple[int, int]:
        return source, tag

    def saw(self, kind: Kind, status: Status) -> None:
        self.events.saw(kind, status)

    def Irecv(self, buf: Any, source: int = ANY, tag: int = ANY) -> OrderedRequest:
        request = OrderedRequest(self, self.comm.Irecv(buf, source, tag), Status())
        if ANY in (source, tag):
            request.place = self.events.add(Kind.NEVER)
            self.log.pending.add(request)
        return request

    def Iprobe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> bool:
        status = status or Status()
        there = self.comm.Iprobe(source, tag, status)
        self.events.polled(Kind.IPROBE, there, status)
        return there

    def test(self, request: OrderedRequest, status: Any) -> bool:
        done = request.finish(request.request.Test, status)
        self.events.polled(Kind.TEST, done)
        return done

    def Waitany(self, requests: Sequence[Any], status: Any = None) -> int:
        status = status or Status()
        number = self.comm.Waitany(bare(requests, OrderedRequest), status)
        if number >= 0 and isinstance(requests[number], OrderedRequest):
            requests[number].came(status)
        self.events.add(Kind.WAITANY, number)
        return number

    def compute(self, seconds: float, unless: Any = None) -> bool:
        if unless is None:
            return self.comm.platform.compute(seconds)
        passed = self.comm.platform.compute(seconds, Glimpse(unless))
        self.events.polled(Kind.COMPUTE, not passed)
        return passed

    def note(self, number: float) -> None:
        self.events.add(Kind.NOTE, int(number))
