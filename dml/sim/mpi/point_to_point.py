"""Messages of buffers: blocking, non-blocking, persistent and matched."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from dml.sim.mpi.communicators import BaseComm, CommObject
from dml.sim.mpi.constants import CONSTANTS, error
from dml.sim.mpi.messages import Block, simple
from dml.sim.mpi.requests import Pending, Prequest, Request, rank_failed
from dml.sim.mpi.status import Status
from dml.sim.transfer import ISEND, Accepting, VirtualRequest
from dml.types import PROC_NULL, BadInput, RankFailed
from dml.types import Status as PlainStatus
from dml.types.messages import truncated

ANY_SOURCE, ANY_TAG = CONSTANTS["ANY_SOURCE"], CONSTANTS["ANY_TAG"]
# limits of eager messages by mode; None: that of the network
MODES = {"s": -1, "b": float("inf"), "r": None, "": None}


@cache
def mode_of(call: str) -> str:
    """Return the mode of a send, such as "s" of Issend."""
    return call.lower().removesuffix("_init").removesuffix("send").removeprefix("i")


def post_send(
    held: CommObject, call: str, data: np.ndarray, dest: int, tag: int, blocks: bool
) -> VirtualRequest:
    """Start a send of bytes in the mode of the call; return its request."""
    comm, owner = held.comm, held.owner
    dest, tag = held.peer(call, "dest", dest), held.tag(call, tag)
    if dest == PROC_NULL:
        return VirtualRequest.null(comm, ISEND, data)
    mode = mode_of(call)
    limit = MODES[mode]
    owner.messages += 1
    owner.nbytes += data.nbytes
    if owner.options.trace is not None:
        owner.options.trace.sent(comm, dest, tag, data.nbytes)
    if mode == "b":
        check_attached(held, call, data.nbytes)
    name = f"{call}(dest" if blocks else ISEND
    try:
        if limit is None:
            request = comm._send(name, data, dest, tag)
        else:
            usual, comm.eager = comm.eager, limit
            try:
                request = comm._send(name, data, dest, tag)
            finally:
                comm.eager = usual
    except RankFailed as failure:
        raise rank_failed(call, failure) from failure
    if request is None:
        request = VirtualRequest(comm, name, data, dest, tag)
        request.done = comm.process.out_free
    return request


def check_attached(held: CommObject, call: str, nbytes: int) -> None:
    room = held.attached if held.attached is not None else held.owner.attached
    if room is None or nbytes > room:
        raise error(
            "ERR_BUFFER",
            f"{call}: expected a buffer of at least {nbytes} bytes, got "
            f"{'none' if room is None else f'{room} bytes'}; pass a longer one to "
            "MPI.Attach_buffer",
        )


def post_receive(
    held: CommObject, call: str, into: np.ndarray, source: int, tag: int
) -> VirtualRequest:
    """Start a receive into a vector of bytes or an `Accepting`."""
    source = held.peer(call, "source", source, wild=True)
    tag = held.tag(call, tag, wild=True)
    try:
        return held.comm.Irecv(into, source, tag)
    except RankFailed as failure:
        raise rank_failed(call, failure) from failure


def destination(block: Block) -> np.ndarray:
    """Return a vector that receives the bytes of a block."""
    if block.layout.dense:
        return block.pack()

    def take(data: np.ndarray, source: int) -> BadInput | None:
        if len(data) > block.nbytes:
            return truncated(source)
        block.unpack(data)
        return None

    return Accepting(take, block.nbytes)


class PointToPoint(BaseComm):
    """Messages of buffers."""

    def sends(
        self, call: str, buf: Any, dest: int, tag: int, blocks: bool = False
    ) -> VirtualRequest:
        held = self.need(f"Comm.{call}")
        if dest == PROC_NULL and buf is None:
            return VirtualRequest.null(held.comm, ISEND, np.zeros(0, np.uint8))
        return post_send(held, call, simple(buf, True).pack(), dest, tag, blocks)

    def receives(self, call: str, buf: Any, source: int, tag: int) -> VirtualRequest:
        held = self.need(f"Comm.{call}")
        into = destination(simple(buf, False))
        return post_receive(held, call, into, source, tag)

    def finish(
        self, call: str, virtual: VirtualRequest, status: Any, receives: bool = True
    ) -> None:
        """Wait for a blocking call; fill the status."""
        pending = self.pending(call, virtual, receives)
        pending.wait()
        if status is not None:
            status.__init__(pending.status)
        if pending.error is not None:
            raise pending.error

    def finish_send(self, call: str, virtual: VirtualRequest) -> None:
        """Wait for a blocking send."""
        self.finish(call, virtual, None, receives=False)

    def finish_both(
        self, call: str, receive: VirtualRequest, send: VirtualRequest, status: Any
    ) -> None:
        """Wait for a receive, whose status is filled, and for a send."""
        self.finish(call, receive, status)
        self.finish_send(call, send)

    def pending(self, call: str, virtual: Any, receives: bool) -> Pending:
        trace = self.held.owner.options.trace
        return Pending(virtual, call, receives=receives, trace=trace)

    def Recv(
        self,
        buf: Any,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        self.finish("Recv", self.receives("Recv", buf, source, tag), status)

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        virtual = self.receives("Irecv", buf, source, tag)
        return Request.of(self.pending("Irecv", virtual, True))

    def Recv_init(
        self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG
    ) -> Prequest:
        held = self.need("Comm.Recv_init")
        held.peer("Recv_init", "source", source, wild=True)
        into = destination(simple(buf, False))
        return self.persistent(
            "Recv_init",
            lambda: post_receive(held, "Recv_init", into, source, tag),
            True,
        )

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        held = self.need("Comm.Sendrecv")
        data, into = simple(sendbuf, True).pack(), destination(simple(recvbuf, False))
        receive = post_receive(held, "Sendrecv", into, source, recvtag)
        send = post_send(held, "Isend", data, dest, sendtag, False)
        self.finish_both("Sendrecv", receive, send, status)

    def Sendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        held = self.need("Comm.Sendrecv_replace")
        block = simple(buf, False)
        data, into = block.pack().copy(), destination(block)
        receive = post_receive(held, "Sendrecv_replace", into, source, recvtag)
        send = post_send(held, "Isend", data, dest, sendtag, False)
        self.finish_both("Sendrecv_replace", receive, send, status)

    def Isendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
    ) -> Request:
        held = self.need("Comm.Isendrecv")
        data = simple(sendbuf, True).pack()
        into = destination(simple(recvbuf, False))
        receive = post_receive(held, "Isendrecv", into, source, recvtag)
        send = post_send(held, "Isend", data, dest, sendtag, False)
        return self.both("Isendrecv", receive, send)

    def Isendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
    ) -> Request:
        held = self.need("Comm.Isendrecv_replace")
        block = simple(buf, False)
        data, into = block.pack().copy(), destination(block)
        receive = post_receive(held, "Isendrecv_replace", into, source, recvtag)
        send = post_send(held, "Isend", data, dest, sendtag, False)
        return self.both("Isendrecv_replace", receive, send)

    def both(self, call: str, receive: VirtualRequest, send: VirtualRequest) -> Request:
        """Return one request of a receive and a send."""
        pending = self.pending(call, receive, True)
        pending.also = send
        return Request.of(pending)

    def persistent(self, call: str, start: Callable[[], Any], receives: bool) -> Any:
        trace = self.held.owner.options.trace
        return Prequest.of(
            Pending(None, call, start=start, receives=receives, trace=trace)
        )

    # Probes.

    def Probe(
        self,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        status: Status | None = None,
    ) -> bool:
        held = self.need("Comm.Probe")
        source = held.peer("Probe", "source", source, wild=True)
        plain = PlainStatus()
        held.comm.Probe(source, held.tag("Probe", tag, wild=True), plain)
        if status is not None:
            status.fill(plain.source, plain.tag, plain.count)
        return True

    def Iprobe(
        self,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        status: Status | None = None,
    ) -> bool:
        held = self.need("Comm.Iprobe")
        source = held.peer("Iprobe", "source", source, wild=True)
        plain = PlainStatus()
        if not held.comm.Iprobe(source, held.tag("Iprobe", tag, wild=True), plain):
            return False
        if status is not None:
            status.fill(plain.source, plain.tag, plain.count)
        return True


def send_methods(call: str) -> list[Callable[..., Any]]:
    """Return the blocking, the non-blocking and the persistent send of a mode."""
    lower = call.lower()

    def send(self: Any, buf: Any, dest: int, tag: int = 0) -> None:
        virtual = self.sends(call, buf, dest, tag, blocks=True)
        self.finish_send(call, virtual)

    def isend(self: Any, buf: Any, dest: int, tag: int = 0) -> Request:
        virtual = self.sends(f"I{lower}", buf, dest, tag)
        return Request.of(self.pending(f"I{lower}", virtual, False))

    def init(self: Any, buf: Any, dest: int, tag: int = 0) -> Prequest:
        held = self.need(f"Comm.{call}_init")
        held.peer(f"{call}_init", "dest", dest)
        block = simple(buf, True)

        def start() -> VirtualRequest:
            return post_send(held, f"{call}_init", block.pack(), dest, tag, False)

        return self.persistent(f"{call}_init", start, False)

    send.__name__, isend.__name__, init.__name__ = call, f"I{lower}", f"{call}_init"
    return [send, isend, init]


for mode in ("Send", "Ssend", "Bsend", "Rsend"):
    for method in send_methods(mode):
        method.__qualname__ = f"Comm.{method.__name__}"
        setattr(PointToPoint, method.__name__, method)
