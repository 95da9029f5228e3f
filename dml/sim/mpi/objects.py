"""Messages and collective calls of Python objects, in lower case.

Objects are sent as pickles, and the bytes of the pickles are counted.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dml.sim.mpi.channel import Call, Channel, as_bytes
from dml.sim.mpi.constants import CONSTANTS
from dml.sim.mpi.memory import memory_of
from dml.sim.mpi.operations import OPS
from dml.sim.mpi.pickles import pickle
from dml.sim.mpi.point_to_point import PointToPoint, post_receive, post_send
from dml.sim.mpi.requests import Request
from dml.sim.mpi.status import Status
from dml.sim.transfer import Accepting, VirtualRequest
from dml.types import PROC_NULL, BadInput
from dml.types.messages import truncated

ANY_SOURCE, ANY_TAG = CONSTANTS["ANY_SOURCE"], CONSTANTS["ANY_TAG"]
SUM = OPS["SUM"]


class Inbox:
    """The place of a received pickle."""

    def __init__(self, buf: Any = None):
        self.data: np.ndarray | None = None
        self.room: int | None = None
        if buf is not None and not isinstance(buf, int):
            self.room = len(memory_of(buf, readonly=False)[0])
        self.into = Accepting(self.take)

    def take(self, data: np.ndarray, source: int) -> BadInput | None:
        if self.room is not None and len(data) > self.room:
            return truncated(source)
        self.data = data.copy()
        return None

    def value(self) -> Any:
        return (
            pickle.loads(self.data)
            if self.data is not None and len(self.data)
            else None
        )


class ObjectMessages(PointToPoint):
    """Messages of objects."""

    def recv(
        self,
        buf: Any = None,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Any:
        held = self.need("Comm.recv")
        if buf is not None:
            warnings.warn(
                "recv: expected no buffer, which is not needed; pass buf=None",
                UserWarning,
                stacklevel=2,
            )
        inbox = Inbox(buf)
        virtual = post_receive(held, "recv", inbox.into, source, tag)
        self.finish("recv", virtual, status)
        return inbox.value()

    def irecv(
        self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG
    ) -> Request:
        held = self.need("Comm.irecv")
        inbox = Inbox(buf)
        virtual = post_receive(held, "irecv", inbox.into, source, tag)
        pending = self.pending("irecv", virtual, True)
        pending.value = inbox.value
        return Request.of(pending)

    def sendrecv(
        self,
        sendobj: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Any:
        held = self.need("Comm.sendrecv")
        inbox = Inbox(recvbuf)
        receive = post_receive(held, "sendrecv", inbox.into, source, recvtag)
        send = post_send(held, "isend", as_bytes(sendobj), dest, sendtag, False)
        self.finish_both("sendrecv", receive, send, status)
        return inbox.value()

    probe = PointToPoint.Probe
    iprobe = PointToPoint.Iprobe


def send_methods(call: str) -> list[Callable[..., Any]]:
    """Return the blocking and the non-blocking send of a mode."""

    def send(self: Any, obj: Any, dest: int, tag: int = 0) -> None:
        self.finish_send(call, sent(self, call, obj, dest, tag, True))

    def isend(self: Any, obj: Any, dest: int, tag: int = 0) -> Request:
        virtual = sent(self, f"i{call}", obj, dest, tag, False)
        return Request.of(self.pending(f"i{call}", virtual, False))

    send.__name__, isend.__name__ = call, f"i{call}"
    return [send, isend]


def sent(
    self: Any, call: str, obj: Any, dest: int, tag: int, blocks: bool
) -> VirtualRequest:
    held = self.need(f"Comm.{call}")
    data = np.zeros(0, np.uint8) if dest == PROC_NULL else as_bytes(obj)
    return post_send(held, call, data, dest, tag, blocks)


for mode in ("send", "ssend", "bsend"):
    for method in send_methods(mode):
        method.__qualname__ = f"Comm.{method.__name__}"
        setattr(ObjectMessages, method.__name__, method)


class ObjectCollectives(ObjectMessages):
    """Collective calls of objects. Values travel as pickles, which ranks forward."""

    def barrier(self) -> None:
        self.need("Comm.barrier").collective(
            Call["Barrier"], lambda channel: channel.table["barrier"](channel)
        )

    def of_objects(self, name: str, body: Callable[[Channel], Any]) -> Any:
        return self.need(f"Comm.{name.lower()}").collective(Call[name], body, True)

    def bcast(self, obj: Any, root: int = 0) -> Any:
        held = self.need("Comm.bcast")
        root = held.root("bcast", root)
        data = pickle.dumps(obj) if held.rank == root else None
        return pickle.loads(
            self.of_objects("Bcast", lambda ch: ch.table["bcast"](ch, data, root))
        )

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        root = self.need("Comm.gather").root("gather", root)
        data = pickle.dumps(sendobj)
        found = self.of_objects("Gather", lambda ch: ch.table["gather"](ch, data, root))
        return None if found is None else [pickle.loads(one) for one in found]

    def scatter(self, sendobj: Sequence[Any] | None, root: int = 0) -> Any:
        held = self.need("Comm.scatter")
        root, values = held.root("scatter", root), None
        if held.rank == root:
            values = pickled(sendobj, held.size, "scatter")
        return pickle.loads(
            self.of_objects(
                "Scatter", lambda ch: ch.table["scatter"](ch, values, None, root)
            )
        )

    def allgather(self, sendobj: Any) -> list[Any]:
        size, data = self.Get_size(), pickle.dumps(sendobj)
        found = self.of_objects(
            "Allgather", lambda ch: ch.table["allgather"](ch, data, [None] * size)
        )
        return [pickle.loads(one) for one in found]

    def alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        size = self.Get_size()
        values = pickled(sendobj, size, "alltoall")
        found = self.of_objects(
            "Alltoall", lambda ch: ch.table["alltoall"](ch, values, [None] * size)
        )
        return [pickle.loads(one) for one in found]

    def reduce(self, sendobj: Any, op: Any = SUM, root: int = 0) -> Any:
        root = self.need("Comm.reduce").root("reduce", root)
        # in rank order: objects may not commute
        return self.of_objects(
            "Reduce", lambda ch: ch.table["reduce"](ch, sendobj, op, root, False)
        )

    def allreduce(self, sendobj: Any, op: Any = SUM) -> Any:
        return self.of_objects(
            "Allreduce", lambda ch: ch.table["ordered_allreduce"](ch, sendobj, op)
        )

    def scan(self, sendobj: Any, op: Any = SUM) -> Any:
        return self.of_objects(
            "Scan", lambda ch: ch.table["scan"](ch, sendobj, op, False)
        )

    def exscan(self, sendobj: Any, op: Any = SUM) -> Any:
        return self.of_objects(
            "Exscan", lambda ch: ch.table["scan"](ch, sendobj, op, True)
        )


def pickled(objects: Any, size: int, call: str) -> list[bytes]:
    """Return the pickles of one object for each rank."""
    values = [None] * size if objects is None else [*objects]
    if len(values) != size:
        raise ValueError(
            f"{call}: expected a sequence of {size} objects, got {len(values)}"
        )
    return [pickle.dumps(value) for value in values]
