"""Matched probes: a message that a probe has found is received by its handle."""

from typing import Any

from dml.sim.mpi.communicators import BaseComm
from dml.sim.mpi.constants import CONSTANTS
from dml.sim.mpi.handles import Handle, name_handle
from dml.sim.mpi.messages import simple
from dml.sim.mpi.objects import Inbox
from dml.sim.mpi.point_to_point import destination
from dml.sim.mpi.requests import Pending, Request
from dml.sim.mpi.status import Status
from dml.sim.transfer import VirtualRequest
from dml.types import PROC_NULL
from dml.types import Status as PlainStatus

ANY_SOURCE, ANY_TAG = CONSTANTS["ANY_SOURCE"], CONSTANTS["ANY_TAG"]


class MessageObject:
    """The object of a message: the one that a probe found; None from PROC_NULL."""

    def __init__(self, held: Any, found: Any):
        self.held, self.found = held, found


class Message(Handle):
    """A matched message of mpi4py."""

    null_error = "ERR_REQUEST"

    def start(self, call: str, into: Any) -> Pending:
        """Receive the message; return the pending receive."""
        taken = self.need(f"Message.{call}")
        if self.named != "MESSAGE_NO_PROC":
            self.held = None
        if taken.found is None:
            pending = Pending(None, call)
            pending.status.fill(PROC_NULL, ANY_TAG, 0)
            return pending
        comm, found = taken.held.comm, taken.found
        virtual = VirtualRequest(comm, f"{call}(source", into, found.source, found.tag)
        comm.process.open_receives += 1
        comm.match_any().match(found, virtual)
        return Pending(virtual, call, trace=taken.held.owner.options.trace)

    def Recv(self, buf: Any, status: Status | None = None) -> None:
        request = self.Irecv(buf)
        request.held.call = "Mrecv"
        request.Wait(status)

    def Irecv(self, buf: Any) -> Request:
        return Request.of(self.start("Imrecv", destination(simple(buf, False))))

    def recv(self, status: Status | None = None) -> Any:
        return self.irecv().wait(status)

    def irecv(self) -> Request:
        inbox = Inbox()
        pending = self.start("mrecv", inbox.into)
        pending.value = inbox.value
        return Request.of(pending)

    @classmethod
    def Probe(cls, comm: Any, *arguments: Any, **options: Any) -> Any:
        return comm.Mprobe(*arguments, **options)

    @classmethod
    def Iprobe(cls, comm: Any, *arguments: Any, **options: Any) -> Any:
        return comm.Improbe(*arguments, **options)

    probe, iprobe = Probe, Iprobe


Message.root = Message
name_handle("MESSAGE_NULL", Message.of(None))
NO_PROC = name_handle("MESSAGE_NO_PROC", Message.of(MessageObject(None, None)))


class MatchedMessages(BaseComm):
    """Probes that return messages."""

    def Mprobe(
        self,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Message:
        found = self.matched("Mprobe", source, tag, status, True)
        assert found is not None
        return found

    def Improbe(
        self,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Message | None:
        return self.matched("Improbe", source, tag, status, False)

    mprobe, improbe = Mprobe, Improbe

    def matched(
        self, call: str, source: int, tag: int, status: Any, wait: bool
    ) -> Message | None:
        """Remove a message from the queue, so that no receive gets it."""
        held = self.need(f"Comm.{call}")
        source = held.peer(call, "source", source, wild=True)
        tag = held.tag(call, tag, wild=True)
        if source == PROC_NULL:
            if status is not None:
                status.fill(PROC_NULL, ANY_TAG, 0)
            return Message(NO_PROC)
        plain, comm = PlainStatus(), held.comm
        if wait:
            comm.Probe(source, tag, plain)
        elif not comm.Iprobe(source, tag, plain):
            return None
        queue = comm.match_any()
        found = queue.first(plain.source, plain.tag)
        queue.visible.remove(found)
        if status is not None:
            status.fill(plain.source, plain.tag, plain.count)
        return Message.of(MessageObject(held, found))
