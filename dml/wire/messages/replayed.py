"""A communicator on which what a record says comes first does."""

from collections.abc import Sequence
from typing import Any

from dml.types import ANY, Status
from dml.wire.messages.events import Kind
from dml.wire.messages.ordered import Ordered, OrderedRequest


class Replayed(Ordered):
    """Wraps a communicator, and so what it splits; a log says whom ANY stands for.

    What was there is waited for, what was not is not looked for. The first call that
    differs from its event raises. Ranks, speeds and networks may be others, real or
    virtual, where sends that were buffered still are.
    """

    replays = True

    def named(self, kind: Kind, source: int, tag: int) -> tuple[int, int]:
        event = self.events.take(kind, asks=(source, tag))
        return event.source, event.tag

    def saw(self, kind: Kind, status: Status) -> None:
        """Nothing: the record has it."""

    def Irecv(self, buf: Any, source: int = ANY, tag: int = ANY) -> OrderedRequest:
        if ANY in (source, tag):
            event = self.events.take(Kind.IRECV, Kind.NEVER, asks=(source, tag))
            if event.kind is Kind.NEVER:  # and must not take a later message
                return OrderedRequest(self, None, Status())
            source, tag = event.source, event.tag
        return OrderedRequest(self, self.comm.Irecv(buf, source, tag), Status())

    def Iprobe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> bool:
        event = self.events.poll(Kind.IPROBE, (source, tag))
        if event is None:
            return False
        self.comm.Probe(event.source, event.tag, status)
        return True

    def test(self, request: OrderedRequest, status: Any) -> bool:
        return self.events.poll(Kind.TEST) is not None and request.Wait(status)

    def Waitany(self, requests: Sequence[Any], status: Any = None) -> int:
        number = self.events.take(Kind.WAITANY).number
        if number >= len(requests):
            self.events.at -= 1
            raise self.events.differs(f"Waitany of {len(requests)} requests")
        if number >= 0:
            requests[number].Wait(status)
        return number

    def compute(self, seconds: float, unless: Any = None) -> bool:
        if unless is None or self.events.poll(Kind.COMPUTE) is None:
            return self.comm.platform.compute(seconds)
        unless.Wait()
        return False

    def note(self, number: float) -> None:
        """Compare a number that the program has read with the recorded one."""
        self.events.meets(Kind.NOTE, int(number))
