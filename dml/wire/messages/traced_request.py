"""A request of a traced communicator: its Wait, and when it had its message."""

from collections.abc import Callable
from typing import Any

from dml.types import ANY, Status


def asked(status: Any, source: int, tag: int) -> Any:
    """Return a status that says who sent, where else nobody would know."""
    return Status() if status is None and ANY in (source, tag) else status


def given(status: Any) -> tuple:
    return () if status is None else (status,)


class TracedRequest:
    """A request whose Wait is noted, and when it had its message."""

    def __init__(self, comm: Any, request: Any, place: list | None):
        self.comm, self.request, self.place = comm, request, place

    def Wait(self, status: Any = None) -> bool:
        start = self.comm.Wtime()
        self.finish(self.request.Wait, status)
        self.comm.waited("Wait", start)
        return True

    def Test(self, status: Any = None) -> bool:
        return self.finish(self.request.Test, status)

    def finish(self, call: Callable[..., bool], status: Any) -> bool:
        """Wait or test; note when there is a message."""
        if self.place:
            status = asked(status, self.place[1], self.place[2])
        done = call(*given(status))
        if done:
            self.came(status)
        return done

    def came(self, status: Any) -> None:
        """Note that the message is there, the first time."""
        if self.place:
            self.comm.has(self.place, status)
            self.place = None


def bare(request: Any) -> Any:
    return request.request if isinstance(request, TracedRequest) else request
