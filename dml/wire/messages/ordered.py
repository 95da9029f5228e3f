"""What recorded and replayed communicators share: their log and their requests."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

from dml.types import ANY, BadInput, Comm, Status
from dml.wire.messages.events import Kind
from dml.wire.messages.log import Log
from dml.wire.messages.wrapper import WrappedRequest, Wrapper, asked


class Ordered(Wrapper, ABC):
    """Wraps a communicator, and so what it splits; the log has the order of events."""

    replays: bool

    def __init__(self, comm: Comm, log: Log):
        super().__init__(comm)
        self.log = log
        self.events = log.open(comm, self.replays)
        self.platform = comm.platform._replace(compute=self.compute, note=self.note)

    def wrap(self, comm: Comm) -> Self:
        return type(self)(comm, self.log)

    @abstractmethod
    def named(self, kind: Kind, source: int, tag: int) -> tuple[int, int]:
        """Return the source and the tag to ask for, where one of them is ANY."""

    @abstractmethod
    def saw(self, kind: Kind, status: Status) -> None:
        """Take note of the message that such a call has received."""

    @abstractmethod
    def test(self, request: "OrderedRequest", status: Any) -> bool:
        """Return whether a request has completed, as its Test does."""

    @abstractmethod
    def compute(self, seconds: float, unless: Any = None) -> bool:
        """Compute as the platform does."""

    @abstractmethod
    def note(self, number: float) -> None:
        """Add a number that the program has read, such as a version."""

    def Recv(
        self, buf: Any, source: int = ANY, tag: int = ANY, status: Any = None
    ) -> None:
        if ANY not in (source, tag):
            return self.comm.Recv(buf, source, tag, status)
        source, tag = self.named(Kind.RECV, source, tag)
        status = asked(status, source, tag)
        self.comm.Recv(buf, source, tag, status)
        self.saw(Kind.RECV, status)

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
        wild = ANY in (source, recvtag)
        if wild:
            source, recvtag = self.named(Kind.SENDRECV, source, recvtag)
            status = asked(status, source, recvtag)
        self.comm.Sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag, status)
        if wild:
            self.saw(Kind.SENDRECV, status)

    def Probe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> None:
        if ANY not in (source, tag):
            return self.comm.Probe(source, tag, status)
        source, tag = self.named(Kind.PROBE, source, tag)
        status = asked(status, source, tag)
        self.comm.Probe(source, tag, status)
        self.saw(Kind.PROBE, status)

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> "OrderedRequest":
        return OrderedRequest(self, self.comm.Isend(buf, dest, tag), None)

    def Waitall(self, requests: Sequence[Any]) -> None:
        for request in requests:
            request.Wait()


class OrderedRequest(WrappedRequest):
    """A request that keeps its status; the communicator decides each Test.

    `place` is where its event waits to be filled; `status` is None for a send.
    """

    def __init__(
        self, comm: Any, request: Any, status: Status | None, place: int | None = None
    ):
        super().__init__(comm, request)
        self.status, self.place, self.done = status, place, False

    def Wait(self, status: Any = None) -> bool:
        if self.request is None:
            raise BadInput(
                f"{self.comm.events.where}: expected no Wait for an Irecv that never "
                "had a message, got one; replay the program that was recorded"
            )
        return self.finish(self.request.Wait, status)

    def Test(self, status: Any = None) -> bool:
        return self.comm.test(self, status)

    def finish(self, call: Callable[..., bool], status: Any = None) -> bool:
        """Wait or test; keep the status, which MPI returns only once."""
        if self.status is None:
            return call(status)
        if not self.done:
            if not call(self.status):
                return False
            self.came()
        if status is not None:
            vars(status).update(vars(self.status))
        return True

    def came(self, status: Status | None = None) -> None:
        """Mark as completed, with the status of a Waitany if there is one."""
        self.done = True
        if self.status is not None and status is not None:
            vars(self.status).update(vars(status))
        if self.place is not None:
            self.comm.events.fill(self.place, self.status)
            self.comm.log.pending.discard(self)


class Glimpse:
    """A request for `compute`, whose Test is not a Test of the program."""

    def __init__(self, request: OrderedRequest):
        self.request = request

    def Test(self, status: Any = None) -> bool:
        return self.request.finish(self.request.request.Test, status)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.request.request, name)  # a virtual request's time
