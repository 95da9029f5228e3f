"""What recorded and replayed communicators share: who they are, and their requests."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

from dml.types import SHARED, BadInput, Comm, Status
from dml.wire.messages.log import Log
from dml.wire.messages.traced_request import given


class Ordered(ABC):
    """Wraps a communicator, and so what it splits; its log says who came first."""

    replays: bool

    def __init__(self, comm: Comm, log: Log):
        self.comm, self.log = comm, log
        self.rank, self.size = comm.rank, comm.size
        self.pause, self.Reduce_local = comm.pause, comm.Reduce_local  # often called
        self.Send, self.Wtime = comm.Send, comm.Wtime
        self.kept: dict[Any, Any] = {}
        self.events = log.open(comm, self.replays)

    @abstractmethod
    def test(self, request: "OrderedRequest", status: Any) -> bool:
        """Say whether a request is done, as its Test does."""

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> "OrderedRequest":
        return OrderedRequest(self, self.comm.Isend(buf, dest, tag), None)

    def Waitall(self, requests: Sequence[Any]) -> None:
        for request in requests:
            request.Wait()

    def Split(self, color: int = 0, key: int = 0) -> Self:
        return type(self)(self.comm.Split(color, key), self.log)

    def Split_type(self, split_type: int = SHARED, key: int = 0) -> Self:
        return type(self)(self.comm.Split_type(split_type, key), self.log)

    def Dup(self) -> Self:
        return type(self)(self.comm.Dup(), self.log)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.comm, name)


class OrderedRequest:
    """A request that keeps what it has found; its communicator answers a Test.

    `place` is where its event waits to be filled; `found` is None for a send.
    """

    def __init__(
        self, comm: Any, request: Any, found: Status | None, place: int | None = None
    ):
        self.comm, self.request, self.found, self.place = comm, request, found, place
        self.done = False

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
        """Wait or test; keep who sent, which MPI says only once."""
        if self.found is None:
            return call(*given(status))
        if not self.done:
            if not call(self.found):
                return False
            self.came()
        if status is not None:
            vars(status).update(vars(self.found))
        return True

    def came(self, status: Status | None = None) -> None:
        """Note that it is done, and what a Waitany has found."""
        self.done = True
        if self.found is not None and status is not None:
            vars(self.found).update(vars(status))
        if self.place is not None:
            self.comm.events.fill(self.place, self.found)
            self.comm.log.pending.discard(self)


class Glimpse:
    """A request as `compute` looks at it: that is no Test of the program's."""

    def __init__(self, request: OrderedRequest):
        self.request = request

    def Test(self, status: Any = None) -> bool:
        return self.request.finish(self.request.request.Test, status)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.request.request, name)  # a virtual one's moment


def bare(request: Any) -> Any:
    return request.request if isinstance(request, OrderedRequest) else request
