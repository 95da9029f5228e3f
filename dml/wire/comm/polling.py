"""Base classes of wrappers whose blocking calls wait for requests, or poll them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from dml.types import ANY
from dml.types.messages import dest_of, memory_of, tag_of
from dml.wire.comm.wrapper import WrappedRequest, Wrapper

Call = tuple[str, str, int, int, Any]  # a blocking call, as `World.call` in mpi.py


class ByRequests(Wrapper):
    """Implements every blocking call by the requests of Isend and Irecv."""

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        self.Isend(buf, dest, tag).Wait()

    def Recv(
        self, buf: Any, source: int = ANY, tag: int = ANY, status: Any = None
    ) -> None:
        self.Irecv(buf, source, tag).Wait(status)

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
        dest, sendtag = dest_of(dest, self.size), tag_of(sendtag)
        sendbuf = memory_of(sendbuf)  # refused before a receive is posted
        receive = self.Irecv(recvbuf, source, recvtag)
        send = self.Isend(sendbuf, dest, sendtag)
        receive.Wait(status)
        send.Wait()

    def Waitall(self, requests: Sequence[Any]) -> None:
        for request in requests:
            request.Wait()


class Polling(ByRequests, ABC):
    """Implements every blocking call by requests and polling."""

    @abstractmethod
    def wait(self, done: Callable[[], bool], call: Call) -> None:
        """Poll until done() is true; may return earlier, then MPI's Wait follows.

        `call` describes the wait to the watchdog.
        """

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> "Polled":
        call = ("Isend", "dest", dest, tag, buf)
        return Polled(self, self.comm.Isend(buf, dest, tag), call)

    def Irecv(self, buf: Any, source: int = ANY, tag: int = ANY) -> "Polled":
        call = ("Irecv", "source", source, tag, buf)
        return Polled(self, self.comm.Irecv(buf, source, tag), call)


class Polled(WrappedRequest):
    """A request whose Wait polls; `complete` is True after a successful Test."""

    def __init__(self, comm: Polling, request: Any, call: Call):
        super().__init__(comm, request)
        self.call, self.complete = call, False

    def Test(self, status: Any = None) -> bool:
        self.complete = self.complete or self.request.Test(status)
        return self.complete

    def Wait(self, status: Any = None) -> bool:
        self.comm.wait(lambda: self.Test(status), self.call)
        return self.complete or self.request.Wait(status)
