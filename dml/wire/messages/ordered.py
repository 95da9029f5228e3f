"""What recorded and replayed communicators share: their log and their requests."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

from dml.types import BadInput, Comm, Status
from dml.wire.messages.log import Log
from dml.wire.messages.wrapper import WrappedRequest, Wrapper


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
    def test(self, request: "OrderedRequest", status: Any) -> bool:
        """Return whether a request has completed, as its Test does."""

    @abstractmethod
    def compute(self, seconds: float, unless: Any = None) -> bool:
        """Compute as the platform does."""

    @abstractmethod
    def note(self, number: float) -> None:
        """Add a number that the program has read, such as a version."""

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
