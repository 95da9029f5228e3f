"""A communicator that traces the waiting calls, sends and receives of this rank."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dml.types import ANY, SHARED, Comm, Op, Status, Timeline, Window
from dml.wire.comm.trace_notes import Notes, collect
from dml.wire.comm.wrapper import WrappedRequest, Wrapper, asked, bare

BARRIERS = 5  # by which clocks are compared
ENDLESS = 1 << 62
CALLS = ("Send", "Isend", "Recv", "Irecv", "Sendrecv", "Probe", "Barrier", "Allreduce")


class Traced(Wrapper):
    """Wraps a communicator and those made from it; traces from `begin` to `end`.

        comm = Traced(world());  comm.align();  comm.begin();  …;  comm.end()
        timeline = comm.timeline()      # of all ranks, on rank 0

    A call that may wait becomes an Interval of its name, a message a Message. Tracing
    sends nothing and takes no virtual time before `timeline`. While it is off, CALLS
    are the wrapped communicator's own. Trace whole exchanges: a message in transit at
    `begin` shifts its kind by one.
    """

    def __init__(self, comm: Comm, origin: "Traced | None" = None, color: int = 0):
        super().__init__(comm)
        self.platform = comm.platform._replace(
            shared_window=self.shared_window, compute=self.compute
        )
        self.notes: Notes = origin.notes if origin else Notes(comm)
        self.children = 0  # all members split alike, so all give one name to a group
        self.group: int = 0
        if origin:
            self.group = hash((origin.group, origin.children, color))
        self.notes.members.append((self.group, self.rank))
        self.notes.comms.add(self)
        self.switch(self.notes.on)

    # When to note.

    def align(self) -> None:
        """Compare the clocks of real ranks; collective. Virtual ranks share one."""
        if not self.platform.virtual:
            for _ in range(BARRIERS):
                self.comm.Barrier()
                self.notes.met.append(self.Wtime())

    def begin(self, limit: int = ENDLESS) -> None:
        """Start tracing; stop after a number of intervals of this rank."""
        self.notes.limit = len(self.notes.calls) + limit
        self.notes.switch(True)

    def end(self) -> None:
        """Stop tracing."""
        self.notes.switch(False)

    def switch(self, on: bool) -> None:
        for name in CALLS:
            if on:
                vars(self).pop(name, None)
            else:
                vars(self)[name] = getattr(self.comm, name)

    def timeline(self) -> Timeline | None:
        """Return the timeline of all ranks on rank 0, None elsewhere; collective."""
        return collect(self.notes)

    # What to note.

    def seen(self, name: str, start: float, end: float) -> None:
        """Trace an interval; the `seen` of a Timer."""
        notes = self.notes
        if notes.on:
            notes.calls.append((name, start, end))
            if len(notes.calls) >= notes.limit:
                notes.switch(False)

    def timed(self, name: str, call: Callable[..., Any], *args: Any) -> Any:
        """Return the result of a call, and trace its interval."""
        start = self.Wtime()
        result = call(*args)
        self.seen(name, start, self.Wtime())
        return result

    def sends(self, buffer: Any, dest: int, tag: int, when: float) -> None:
        self.notes.sends.append([self.group, dest, tag, buffer.nbytes, when])

    def expects(self, source: int, tag: int) -> list:
        """Enter a posted receive; `has` completes it."""
        place = [self.group, source, tag, 0, np.nan]
        self.notes.receives.append(place)
        return place

    def has(self, place: list, status: Any) -> None:
        if status is not None:
            place[1:3] = status.Get_source(), status.Get_tag()
        place[4] = self.Wtime()

    # Messages.

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        start = self.Wtime()
        self.sends(buf, dest, tag, start)
        self.comm.Send(buf, dest, tag)
        self.seen("Send", start, self.Wtime())

    def Recv(
        self, buf: Any, source: int = ANY, tag: int = ANY, status: Any = None
    ) -> None:
        status = asked(status, source, tag)
        start, place = self.Wtime(), self.expects(source, tag)
        self.comm.Recv(buf, source, tag, status)
        self.has(place, status)
        self.seen("Recv", start, self.Wtime())

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
        status = asked(status, source, recvtag)
        start, place = self.Wtime(), self.expects(source, recvtag)
        self.sends(sendbuf, dest, sendtag, start)
        self.comm.Sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag, status)
        self.has(place, status)
        self.seen("Sendrecv", start, self.Wtime())

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> "TracedRequest":
        self.sends(buf, dest, tag, self.Wtime())
        return TracedRequest(self, self.comm.Isend(buf, dest, tag), None)

    def Irecv(self, buf: Any, source: int = ANY, tag: int = ANY) -> "TracedRequest":
        place = self.expects(source, tag)
        return TracedRequest(self, self.comm.Irecv(buf, source, tag), place)

    def Probe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> None:
        self.timed("Probe", self.comm.Probe, source, tag, status)

    def Waitany(self, requests: Sequence[Any], status: Any = None) -> int:
        status = status or Status()
        inner = bare(requests, TracedRequest)
        number = self.timed("Waitany", self.comm.Waitany, inner, status)
        if number >= 0 and isinstance(requests[number], TracedRequest):
            requests[number].came(status)
        return number

    def Waitall(self, requests: Sequence[Any]) -> None:
        self.timed("Waitall", self.finish, requests)

    def finish(self, requests: Sequence[Any]) -> None:
        for request in requests:
            if isinstance(request, TracedRequest):
                request.finish(request.request.Wait, None)
            else:
                request.Wait()

    # Collective calls.

    def Barrier(self) -> None:
        self.timed("Barrier", self.comm.Barrier)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = np.add) -> None:
        self.timed("Allreduce", self.comm.Allreduce, sendbuf, recvbuf, op)

    def Split(self, color: int = 0, key: int = 0) -> "Traced":
        return self.child(self.timed("Split", self.comm.Split, color, key), color)

    def Split_type(self, split_type: int = SHARED, key: int = 0) -> "Traced":
        host = self.platform.hosts()[self.rank]
        comm = self.timed("Split_type", self.comm.Split_type, split_type, key)
        return self.child(comm, host)

    def Dup(self) -> "Traced":
        return self.child(self.timed("Dup", self.comm.Dup), 0)

    def child(self, comm: Comm, color: int) -> "Traced":
        self.children += 1
        return Traced(comm, self, color)

    # The platform.

    def compute(self, seconds: float, unless: Any = None) -> bool:
        return self.comm.platform.compute(seconds, *bare([unless], TracedRequest))

    def shared_window(self, nbytes: int) -> Window:
        allocate = self.comm.platform.shared_window
        return TracedWindow(self, self.timed("shared_window", allocate, nbytes))


class TracedRequest(WrappedRequest):
    """A request that traces its Wait and the arrival of its message."""

    def __init__(self, comm: Traced, request: Any, place: list | None):
        super().__init__(comm, request)
        self.place = place

    def Wait(self, status: Any = None) -> bool:
        return self.comm.timed("Wait", self.finish, self.request.Wait, status)

    def Test(self, status: Any = None) -> bool:
        return self.finish(self.request.Test, status)

    def finish(self, call: Callable[..., bool], status: Any) -> bool:
        """Wait or test; trace the arrival of a message."""
        if self.place:
            status = asked(status, self.place[1], self.place[2])
        done = call(status)
        if done:
            self.came(status)
        return done

    def came(self, status: Any) -> None:
        """Trace the arrival of the message, once."""
        if self.place:
            self.comm.has(self.place, status)
            self.place = None


class TracedWindow:
    """A shared window whose barriers are traced."""

    def __init__(self, comm: Traced, window: Window):
        self.comm, self.window = comm, window
        self.parts = window.parts

    def barrier(self, pause: Callable[[], object]) -> None:
        if self.comm.notes.on:
            self.comm.timed("Meet", self.window.barrier, pause)
        else:
            self.window.barrier(pause)

    def Free(self) -> None:
        self.window.Free()
