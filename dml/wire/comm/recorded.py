"""Communicators that record the order of events of a run, and that replay it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dml.types import ANY, PROC_NULL, RankFailed, Status
from dml.wire.comm.events import Event, Kind
from dml.wire.comm.members import Members
from dml.wire.comm.ordered import Ordered, OrderedRequest, UnrecordedRequest
from dml.wire.comm.wrapper import (
    from_any,
    report,
    unwrap,
)


class Recorded(Ordered):
    """Records into a log the events that differ between runs of a program.

        log = Log();  program(Recorded(comm, log));  codes = log.collect(comm)
        log = Log(codes[comm.rank]);  program(Replayed(comm, log));  log.finish()

    Events are the source and tag of each receive from ANY, the results of Iprobe, Test,
    Waitany and compute(unless), the numbers that the program notes, and all that it
    learns of deaths: failed calls, Get_failed, Agree and Shrink. Everything else
    follows from these, because messages between two ranks do not overtake each other.
    The event of an Irecv stands where the Irecv was posted, because MPI matches
    receives in the order in which they are posted.
    """

    replays = False

    def attempt(self, call: Callable[[], Any]) -> Any:
        self.calls += 1
        number = self.calls
        try:
            return call()
        except RankFailed:
            self.events.add(Kind.FAILED, number)
            raise

    def add_ranks(self, ranks: Sequence[int]) -> None:
        """Append events of ranks that died or live."""
        for number in (len(ranks), *ranks):
            self.events.add(Kind.RANKS, number)

    def Get_failed(self) -> Sequence[int]:
        ranks = self.comm.Get_failed()
        self.add_ranks(ranks)
        return ranks

    def Agree(self, flag: int) -> int:
        result = self.comm.Agree(flag)
        self.events.add(Kind.AGREED, result)
        return result

    def Shrink(self) -> "Recorded":
        living = self.comm.Shrink()
        is_living = np.zeros(self.size, np.int64)
        is_living[self.rank] = 1
        living.Allreduce(None, is_living)
        self.add_ranks(np.flatnonzero(is_living).tolist())
        return self.wrap(living)

    def match(self, kind: Kind, source: int, tag: int) -> tuple[int, int]:
        return source, tag

    def record_message(self, kind: Kind, status: Status) -> None:
        self.events.add_message(kind, status)

    def Irecv(self, buf: Any, source: int = ANY, tag: int = ANY) -> OrderedRequest:
        source, tag = self.pattern(source, tag)
        request = OrderedRequest(self, self.comm.Irecv(buf, source, tag), Status())
        if from_any(source, tag):
            request.event_index = self.events.add(Kind.UNMATCHED)
            self.log.pending.add(request)
        return request

    def Iprobe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> bool:
        source, tag = self.pattern(source, tag)
        if source == PROC_NULL:
            return self.comm.Iprobe(source, tag, status)
        status = status or Status()
        success = self.comm.Iprobe(source, tag, status)
        self.events.add_poll(Kind.IPROBE, success, status)
        return success

    def test(self, request: OrderedRequest, status: Any) -> bool:
        message = Status()
        done = request.finish(request.request.Test, message)
        self.events.add_poll(Kind.TEST, done)
        if done:
            report(message, status)
        return done

    def Waitany(self, requests: Sequence[Any], status: Any = None) -> int:
        return self.attempt(lambda: self.wait_any(requests, status))

    def wait_any(self, requests: Sequence[Any], status: Any) -> int:
        """Return the index of the first completed request; record it."""
        message = Status()
        index = self.comm.Waitany(unwrap(requests, OrderedRequest), message)
        if index >= 0 and isinstance(requests[index], OrderedRequest):
            requests[index].complete(message)
        self.events.add(Kind.WAITANY, index)
        if index >= 0:
            report(message, status)
        return index

    def compute(self, seconds: float, unless: Any = None) -> bool:
        if unless is None:
            return self.comm.platform.compute(seconds)
        finished = self.comm.platform.compute(seconds, UnrecordedRequest(unless))
        self.events.add_poll(Kind.COMPUTE, not finished)
        return finished

    def note(self, number: float) -> None:
        self.events.add(Kind.NOTE, int(number))


class Replayed(Ordered):
    """Replays a log: each receive from ANY has the source and tag of its event.

    A successful poll waits for its message, and an unsuccessful one returns at once.
    The first call that differs from its event raises BadInput. Ranks may be real or
    virtual, with other speeds and networks, if buffered sends are still buffered. No
    rank dies: calls fail where they failed, and ranks that died receive no answer.
    """

    replays = True

    def attempt(self, call: Callable[[], Any]) -> Any:
        self.calls += 1
        if self.events.peek() == Event(Kind.FAILED, self.calls):
            self.events.position += 1
            raise RankFailed(f"{self.events.owner}: call {self.calls}, as recorded")
        return call()

    def take_ranks(self) -> list[int]:
        """Return the recorded ranks that died or live."""
        count = self.events.take(Kind.RANKS).number
        return [self.events.take(Kind.RANKS).number for _ in range(count)]

    def Get_failed(self) -> Sequence[int]:
        return self.take_ranks()

    def Ack_failed(self) -> None:
        """Do nothing: no rank dies."""

    def Agree(self, flag: int) -> int:
        return self.events.take(Kind.AGREED).number

    def Shrink(self) -> "Replayed":
        return self.wrap(Members(self.comm, self.take_ranks()))

    def match(self, kind: Kind, source: int, tag: int) -> tuple[int, int]:
        event = self.events.take(kind, pattern=(source, tag))
        return event.source, event.tag

    def record_message(self, kind: Kind, status: Status) -> None:
        """Do nothing: the log already has the message."""

    def Irecv(self, buf: Any, source: int = ANY, tag: int = ANY) -> OrderedRequest:
        source, tag = self.pattern(source, tag)
        if from_any(source, tag):
            event = self.events.take(Kind.IRECV, Kind.UNMATCHED, pattern=(source, tag))
            if event.kind is Kind.UNMATCHED:
                # a posted Irecv might receive a later message
                return OrderedRequest(self, None, Status())
            source, tag = event.source, event.tag
            posted = self.comm.Irecv(buf, source, tag)
            request = OrderedRequest(self, posted, Status())
            request.from_any = True
            return request
        return OrderedRequest(self, self.comm.Irecv(buf, source, tag), Status())

    def Iprobe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> bool:
        source, tag = self.pattern(source, tag)
        if source == PROC_NULL:
            return self.comm.Iprobe(source, tag, status)
        event = self.events.take_poll(Kind.IPROBE, (source, tag))
        if event is None:
            return False
        self.comm.Probe(event.source, event.tag, status)
        return True

    def test(self, request: OrderedRequest, status: Any) -> bool:
        return self.events.take_poll(Kind.TEST) is not None and request.wait(status)

    def Waitany(self, requests: Sequence[Any], status: Any = None) -> int:
        return self.attempt(lambda: self.wait_any(requests, status))

    def wait_any(self, requests: Sequence[Any], status: Any) -> int:
        """Return the recorded index after its request."""
        index = self.events.take(Kind.WAITANY).number
        if index >= len(requests):
            self.events.position -= 1  # the error message names this event
            raise self.events.mismatch(f"Waitany of {len(requests)} requests")
        if index >= 0:
            request = requests[index]
            wait = request.wait if isinstance(request, OrderedRequest) else request.Wait
            wait(status)
        return index

    def compute(self, seconds: float, unless: Any = None) -> bool:
        if unless is None or self.events.take_poll(Kind.COMPUTE) is None:
            return self.comm.platform.compute(seconds)
        unless.Wait()
        return False

    def note(self, number: float) -> None:
        """Compare a number that the program has read with the recorded one."""
        self.events.expect(Kind.NOTE, int(number))
