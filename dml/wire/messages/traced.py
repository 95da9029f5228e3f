"""A communicator that notes when this rank waits, what it sends and what it has."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dml.types import ANY, SHARED, Comm, Op, Status, Timeline, Window
from dml.wire.messages.notes import Notes, collect
from dml.wire.messages.traced_request import TracedRequest, asked, bare, given

BARRIERS = 5  # by which clocks are compared
ENDLESS = 1 << 62
CALLS = ("Send", "Isend", "Recv", "Irecv", "Sendrecv", "Probe", "Barrier", "Allreduce")


class Traced:
    """Wraps a communicator, and so what it splits; notes from `begin` to `end`.

        comm = Traced(world());  comm.align();  comm.begin();  …;  comm.end()
        timeline = comm.timeline()      # of all ranks, on rank 0

    Every call that may wait is a Span of its name, every message a Flight. Tracing
    sends nothing and takes no virtual time before `timeline`. While it is off, CALLS
    are the wrapped communicator's own. Trace whole exchanges: a message that is under
    way at `begin` shifts its kind by one.
    """

    def __init__(self, comm: Comm, origin: "Traced | None" = None, color: int = 0):
        self.comm = comm
        self.rank, self.size = comm.rank, comm.size
        self.pause, self.Reduce_local = comm.pause, comm.Reduce_local  # often called
        self.Wtime = comm.Wtime
        self.kept: dict[Any, Any] = {}
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
        """Compare real clocks; collective. Virtual ones are one."""
        if self.comm.network is None:
            for _ in range(BARRIERS):
                self.comm.Barrier()
                self.notes.met.append(self.Wtime())

    def begin(self, limit: int = ENDLESS) -> None:
        """Note from now on; end after so many spans of this rank."""
        self.notes.limit = len(self.notes.calls) + limit
        self.notes.switch(True)

    def end(self) -> None:
        """Note no more."""
        self.notes.switch(False)

    def switch(self, on: bool) -> None:
        for name in CALLS:
            if on:
                vars(self).pop(name, None)
            elif hasattr(self.comm, name):
                vars(self)[name] = getattr(self.comm, name)

    def timeline(self) -> Timeline | None:
        """Return what all ranks noted on rank 0, None elsewhere; collective."""
        return collect(self.notes)

    # What to note.

    def seen(self, name: str, start: float, end: float) -> None:
        """Note a span, as a Timer's `seen`."""
        notes = self.notes
        if notes.on:
            notes.calls.append((name, start, end))
            if len(notes.calls) >= notes.limit:
                notes.switch(False)

    def waited(self, name: str, start: float) -> None:
        self.seen(name, start, self.Wtime())

    def sends(self, buffer: Any, dest: int, tag: int, when: float) -> None:
        self.notes.sends.append([self.group, dest, tag, buffer.nbytes, when])

    def expects(self, source: int, tag: int) -> list:
        """Take the next place among the receives; `has` completes it."""
        place = [self.group, source, tag, 0, np.nan]
        self.notes.receives.append(place)
        return place

    def has(self, place: list, status: Any) -> None:
        if status is not None:
            place[1:3] = status.Get_source(), status.Get_tag()
        place[4] = self.Wtime()

    # Messages. A status is passed on where there is one or where it must be asked.

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        start = self.Wtime()
        self.sends(buf, dest, tag, start)
        self.comm.Send(buf, dest, tag)
        self.waited("Send", start)

    def Recv(
        self, buf: Any, source: int = ANY, tag: int = ANY, status: Any = None
    ) -> None:
        status = asked(status, source, tag)
        start, place = self.Wtime(), self.expects(source, tag)
        self.comm.Recv(buf, source, tag, *given(status))
        self.has(place, status)
        self.waited("Recv", start)

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
        self.comm.Sendrecv(
            sendbuf, dest, sendtag, recvbuf, source, recvtag, *given(status)
        )
        self.has(place, status)
        self.waited("Sendrecv", start)

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> "TracedRequest":
        self.sends(buf, dest, tag, self.Wtime())
        return TracedRequest(self, self.comm.Isend(buf, dest, tag), None)

    def Irecv(self, buf: Any, source: int = ANY, tag: int = ANY) -> "TracedRequest":
        place = self.expects(source, tag)
        return TracedRequest(self, self.comm.Irecv(buf, source, tag), place)

    def Probe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> Any:
        return self.timed("Probe", source, tag, *given(status))

    def Waitany(self, requests: Sequence[Any], status: Any = None) -> int:
        start, status = self.Wtime(), status or Status()
        number = self.comm.Waitany([bare(one) for one in requests], status)
        if number >= 0 and isinstance(requests[number], TracedRequest):
            requests[number].came(status)
        self.waited("Waitany", start)
        return number

    def Waitall(self, requests: Sequence[Any]) -> None:
        start = self.Wtime()
        for request in requests:
            if isinstance(request, TracedRequest):
                request.finish(request.request.Wait, None)
            else:
                request.Wait()
        self.waited("Waitall", start)

    # Collective calls.

    def timed(self, name: str, *args: Any) -> Any:
        """Call that method of the wrapped communicator; note how long it took."""
        start = self.Wtime()
        result = getattr(self.comm, name)(*args)
        self.waited(name, start)
        return result

    def Barrier(self) -> None:
        self.timed("Barrier")

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = np.add) -> None:
        self.timed("Allreduce", sendbuf, recvbuf, op)

    def Split(self, color: int = 0, key: int = 0) -> "Traced":
        self.children += 1
        return Traced(self.timed("Split", color, key), self, color)

    def Split_type(self, split_type: int = SHARED, key: int = 0) -> "Traced":
        self.children += 1
        host = self.comm.hosts()[self.rank]
        return Traced(self.timed("Split_type", split_type, key), self, host)

    def Dup(self) -> "Traced":
        self.children += 1
        return Traced(self.timed("Dup"), self)

    def compute(self, seconds: float, unless: Any = None) -> bool:
        return self.comm.compute(seconds, bare(unless))

    def shared_window(self, nbytes: int) -> Window:
        return TracedWindow(self, self.timed("shared_window", nbytes))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.comm, name)


class TracedWindow:
    """A shared window whose meetings are noted."""

    def __init__(self, comm: Traced, window: Window):
        self.comm, self.window = comm, window

    def meet(self, pause: Callable[[], object]) -> None:
        if not self.comm.notes.on:
            return self.window.meet(pause)
        start = self.comm.Wtime()
        self.window.meet(pause)
        self.comm.waited("Meet", start)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.window, name)
