"""Communicators that record the order of events of a run, and that replay it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

from dml.types import ANY, BadInput, Comm, Status
from dml.wire.comm.event_log import Log
from dml.wire.comm.events import Kind
from dml.wire.comm.wrapper import WrappedRequest, Wrapper, asked, bare


class Ordered(Wrapper, ABC):
    """The base class of both: a wrapper whose log has the order of events.

    Communicators made from it are wrapped in the same class, with the same log.
    """

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
        """Return the recorded source and tag of a receive from ANY."""

    @abstractmethod
    def saw(self, kind: Kind, status: Status) -> None:
        """Record the message that a receive from ANY has received."""

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

    `place` is the index of its event, filled later; `status` is None for a send.
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
    """A request for `compute`, whose Test is not an event of the program."""

    def __init__(self, request: OrderedRequest):
        self.request = request

    def Test(self, status: Any = None) -> bool:
        return self.request.finish(self.request.request.Test, status)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.request.request, name)  # a virtual request's time


class Recorded(Ordered):
    """Records into a log the events that differ between runs of a program.

        log = Log();  program(Recorded(comm, log));  every = log.collect(comm)
        log = Log(every[comm.rank]);  program(Replayed(comm, log));  log.finish()

    Events are the source and tag of each receive from ANY (of an Irecv where it is
    posted, as MPI fills receives in that order), the results of Iprobe, Test, Waitany
    and compute(unless), and the numbers that the program notes. Everything else follows
    from these, as messages between two ranks never overtake each other.
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


class Replayed(Ordered):
    """Replays a log: each receive from ANY has the source and tag of its event.

    A successful poll waits for its message, and an unsuccessful one returns at once.
    The first call that differs from its event raises BadInput. Ranks may be real or
    virtual, with other speeds and networks, if buffered sends are still buffered.
    """

    replays = True

    def named(self, kind: Kind, source: int, tag: int) -> tuple[int, int]:
        event = self.events.take(kind, asks=(source, tag))
        return event.source, event.tag

    def saw(self, kind: Kind, status: Status) -> None:
        """Do nothing: the record has the message."""

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
