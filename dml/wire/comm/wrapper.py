"""The base class of communicators that wrap another one and change some operations."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from dml.types import ANY, PROC_NULL, SHARED, TOO_LONG, Cache, Comm, Op, Request, Status
from dml.types.messages import set_status, source_of, tag_of, truncated
from dml.wire.comm.plain import as_comm


def passed_on(name: str) -> property:
    """Return an attribute of the wrapped communicator, which may lack it."""
    return property(lambda self: getattr(self.comm, name))


class Wrapper:
    """Delegates every operation to the wrapped communicator `comm`.

    A subclass overrides the operations that it changes, and `wrap`, which wraps the
    communicators that Split, Split_type and Dup return. A wrapper uses the platform of
    the wrapped communicator, but has its own cache, since caches contain communicators.
    """

    Reduce_local: Callable[..., None]
    Wtime: Callable[[], float]

    def __init__(self, comm: Comm):
        self.comm = comm = as_comm(comm)
        self.rank, self.size = comm.rank, comm.size
        self.platform = comm.platform
        self.Reduce_local, self.Wtime = (
            comm.Reduce_local,
            comm.Wtime,
        )  # no delegation: called often

    @cached_property
    def cache(self) -> Cache:
        return Cache()

    def wrap(self, comm: Comm) -> Self:
        """Wrap a communicator that was made from the wrapped one."""
        return type(self)(comm)

    def pattern(self, source: Any, tag: Any) -> tuple[int, int]:
        """Return the source and the tag of a receive, if they are valid."""
        return source_of(source, self.size), tag_of(tag, receives=True)

    def Get_rank(self) -> int:
        return self.comm.Get_rank()

    def Get_size(self) -> int:
        return self.comm.Get_size()

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        self.comm.Send(buf, dest, tag)

    def Recv(
        self, buf: Any, source: int = ANY, tag: int = ANY, status: Any = None
    ) -> None:
        self.comm.Recv(buf, source, tag, status)

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
        self.comm.Sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag, status)

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        return self.comm.Isend(buf, dest, tag)

    def Irecv(self, buf: Any, source: int = ANY, tag: int = ANY) -> Request:
        return self.comm.Irecv(buf, source, tag)

    def Probe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> None:
        self.comm.Probe(source, tag, status)

    def Iprobe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> bool:
        return self.comm.Iprobe(source, tag, status)

    def Waitany(self, requests: Sequence[Any], status: Any = None) -> int:
        return self.comm.Waitany(requests, status)

    def Waitall(self, requests: Sequence[Any]) -> None:
        self.comm.Waitall(requests)

    def Barrier(self) -> None:
        self.comm.Barrier()

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = np.add) -> None:
        self.comm.Allreduce(sendbuf, recvbuf, op)

    def Split(self, color: int = 0, key: int = 0) -> Any:
        comm = self.comm.Split(color, key)
        return self.wrap(comm) if comm else comm

    def Split_type(self, split_type: int = SHARED, key: int = 0) -> Self:
        return self.wrap(self.comm.Split_type(split_type, key))

    def Dup(self) -> Self:
        return self.wrap(self.comm.Dup())

    def Free(self) -> None:
        self.comm.Free()

    def Revoke(self) -> None:
        self.comm.Revoke()

    def Is_revoked(self) -> bool:
        return self.comm.Is_revoked()

    def Agree(self, flag: int) -> int:
        return self.comm.Agree(flag)

    def Shrink(self) -> Self:
        return self.wrap(self.comm.Shrink())

    def Get_failed(self) -> Sequence[int]:
        return self.comm.Get_failed()

    def Ack_failed(self) -> None:
        self.comm.Ack_failed()

    # Of a wrapped Metered and Traced. With `__getattr__`, Python would look up every
    # attribute slowly.
    messages_sent: Any = passed_on("messages_sent")
    bytes_sent: Any = passed_on("bytes_sent")
    add_interval: Any = passed_on("add_interval")
    align: Any = passed_on("align")
    begin: Any = passed_on("begin")
    end: Any = passed_on("end")
    timeline: Any = passed_on("timeline")


class WrappedRequest:
    """A request of a wrapper `comm`, with the `request` of the wrapped communicator."""

    def __init__(self, comm: Any, request: Any):
        self.comm, self.request = comm, request

    def Cancel(self) -> None:
        """Withdraw a receive, unless a message is matched with it."""
        if self.request is not None:
            self.request.Cancel()


def unwrap(requests: Sequence[Any], request_type: type[WrappedRequest]) -> list[Any]:
    """Replace each request of a type by the request that it wraps."""
    return [
        request.request if isinstance(request, request_type) else request
        for request in requests
    ]


class StrictStatus(Status):
    """The status of a wrapper in a call without one: a message that was cut raises."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "count":
            refuse_cut(self)


def refuse_cut(status: Status) -> None:
    """Raise BadInput if a message was longer than its buffer."""
    if status.count == TOO_LONG:
        raise truncated(status.source)


def report(message: Status, status: Any) -> None:
    """Copy the status of a message to `status`; without one, refuse a cut message."""
    if status is None:
        refuse_cut(message)
    else:
        set_status(status, message.source, message.tag, message.count)


def status_for(status: Any, source: int, tag: int) -> Any:
    """Return the status of a receive; a new one if it is None and needed for ANY."""
    return StrictStatus() if status is None and from_any(source, tag) else status


def from_any(source: int, tag: int) -> bool:
    """Return whether the source or the tag of a message is known after it only."""
    return ANY in (source, tag) and source != PROC_NULL
