"""Communicators that record the order of events of a run, and that replay it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from dml.types import ANY, PROC_NULL, WITHDRAWN, BadInput, Comm, RankFailed, Status
from dml.types.messages import set_status
from dml.wire.comm.event_log import Log
from dml.wire.comm.events import Event, Kind
from dml.wire.comm.members import Members
from dml.wire.comm.wrapper import (
    WrappedRequest,
    Wrapper,
    from_any,
    report,
    status_for,
    unwrap,
)


class Ordered(Wrapper, ABC):
    """The base class of Recorded and Replayed: a wrapper with a log of events.

    Communicators made from it are wrapped in the same class, with the same log. Calls
    that may raise RankFailed are numbered: a failure is an event with the number.
    """

    replays: bool
    calls = 0  # number of calls so far

    def __init__(self, comm: Comm, log: Log):
        super().__init__(comm)
        self.log = log
        self.events = log.open(self.comm, self.replays)
        self.platform = self.platform._replace(compute=self.compute, note=self.note)

    def wrap(self, comm: Comm) -> Self:
        return type(self)(comm, self.log)

    @abstractmethod
    def attempt(self, call: Callable[[], Any]) -> Any:
        """Return call(); record or repeat that it raises RankFailed."""

    @abstractmethod
    def match(self, kind: Kind, source: int, tag: int) -> tuple[int, int]:
        """Return the source and tag to pass to a receive from ANY."""

    @abstractmethod
    def record_message(self, kind: Kind, status: Status) -> None:
        """Record the source and tag of the message of a receive from ANY."""

    @abstractmethod
    def test(self, request: "OrderedRequest", status: Any) -> bool:
        """Return whether a request has completed, as its Test does."""

    @abstractmethod
    def compute(self, seconds: float, unless: Any = None) -> bool:
        """Compute as `Platform.compute` does."""

    @abstractmethod
    def note(self, number: float) -> None:
        """Record or check a number that the program has read, such as a version."""

    def Recv(
        self, buf: Any, source: int = ANY, tag: int = ANY, status: Any = None
    ) -> None:
        source, tag = self.pattern(source, tag)
        self.attempt(lambda: self.receive(buf, source, tag, status))

    def receive(self, buf: Any, source: int, tag: int, status: Any) -> None:
        """Receive a message, in the recorded order if it is from ANY."""
        if not from_any(source, tag):
            return self.comm.Recv(buf, source, tag, status)
        source, tag = self.match(Kind.RECV, source, tag)
        message = Status()
        self.comm.Recv(buf, source, tag, message)
        self.record_message(Kind.RECV, message)
        report(message, status)

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        self.attempt(lambda: self.comm.Send(buf, dest, tag))

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY,
        recvtag: int = ANY,
        status: Any = None,
    ) -> None:
        source, recvtag = self.pattern(source, recvtag)
        is_from_any = from_any(source, recvtag)
        message = status
        if is_from_any:
            source, recvtag = self.match(Kind.SENDRECV, source, recvtag)
            message = Status()
        self.comm.Sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag, message)
        if is_from_any:
            self.record_message(Kind.SENDRECV, message)
            report(message, status)

    def Probe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> None:
        source, tag = self.pattern(source, tag)
        self.attempt(lambda: self.probe(source, tag, status))

    def probe(self, source: int, tag: int, status: Any) -> None:
        """Probe for a message, in the recorded order if it is from ANY."""
        if not from_any(source, tag):
            return self.comm.Probe(source, tag, status)
        source, tag = self.match(Kind.PROBE, source, tag)
        status = status_for(status, source, tag)
        self.comm.Probe(source, tag, status)
        self.record_message(Kind.PROBE, status)

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> "OrderedRequest":
        request = self.attempt(lambda: self.comm.Isend(buf, dest, tag))
        return OrderedRequest(self, request, None)

    def Waitall(self, requests: Sequence[Any]) -> None:
        for request in requests:
            request.Wait()


class OrderedRequest(WrappedRequest):
    """A request that keeps its status; `comm.test` implements its Test.

    Attributes:
      request: The wrapped request; None for an Irecv that received no message.
      status: Status of a receive; None for a send.
      event_index: Index of the event of a recorded Irecv from ANY, else None.
      from_any: Whether it is a replayed Irecv from ANY, which has a message.
      done: Whether the receive has completed.
      cancelled: Whether Cancel was called.
    """

    def __init__(self, comm: Any, request: Any, status: Status | None):
        super().__init__(comm, request)
        self.status = status
        self.event_index: int | None = None
        self.from_any = False
        self.done = self.cancelled = False

    def Wait(self, status: Any = None) -> bool:
        return self.comm.attempt(lambda: self.wait(status))

    def wait(self, status: Any) -> bool:
        """Wait as `Wait` does; complete a withdrawn receive that was not posted."""
        if self.request is None and self.cancelled:
            if status is not None:
                set_status(status, status.source, status.tag, WITHDRAWN)
            return True
        if self.request is None:
            raise BadInput(
                f"{self.comm.events.owner}: expected no Wait for an Irecv that "
                "received no message, got one; replay the program that was recorded"
            )
        return self.finish(self.request.Wait, status)

    def Test(self, status: Any = None) -> bool:
        return self.comm.attempt(lambda: self.comm.test(self, status))

    def Cancel(self) -> None:
        self.cancelled = True
        if not (self.comm.replays and self.from_any):  # else it has a message
            super().Cancel()
        self.comm.log.pending.discard(self)

    def finish(self, call: Callable[..., bool], status: Any = None) -> bool:
        """Call Wait or Test; keep the status, which MPI returns only once."""
        if self.status is None:
            return call(status)
        if not self.done:
            if not call(self.status):
                return False
            self.complete()
        report(self.status, status)
        return True

    def complete(self, status: Status | None = None) -> None:
        """Mark as completed; `status` is that of a Waitany, if any."""
        self.done = True
        if self.status is not None and status is not None:
            vars(self.status).update(vars(status))
        if self.event_index is not None:
            self.comm.log.pending.discard(self)
            assert self.status is not None
            if self.status.count == WITHDRAWN or self.status.source < 0:
                return  # without a message: withdrawn, or ended by a death
            self.comm.events.set_received(self.event_index, self.status)


class UnrecordedRequest:
    """A view of a request for `compute`, whose Tests are not recorded."""

    def __init__(self, request: OrderedRequest):
        self.request = request

    def Test(self, status: Any = None) -> bool:
        return self.request.finish(self.request.request.Test, status)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.request.request, name)  # completion time, if virtual


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
