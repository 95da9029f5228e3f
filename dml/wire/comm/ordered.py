"""What recording and replaying communicators share: calls, requests, a log."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

from dml.types import ANY, WITHDRAWN, BadInput, Comm, Status
from dml.types.messages import set_status
from dml.wire.comm.event_log import Log
from dml.wire.comm.events import Kind
from dml.wire.comm.wrapper import (
    WrappedRequest,
    Wrapper,
    from_any,
    report,
    status_for,
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
