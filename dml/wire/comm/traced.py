"""A communicator that traces the waiting calls, sends and receives of this rank."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dml.types import ANY, SHARED, Comm, Op, Timeline, Window
from dml.types.messages import sent_nbytes
from dml.wire.comm.rank_trace import RankTrace, collect
from dml.wire.comm.wrapper import (
    StrictStatus,
    WrappedRequest,
    Wrapper,
    status_for,
    unwrap,
)

BARRIERS = 5  # barriers of `align`, at which the clocks of hosts are compared
NO_LIMIT = 1 << 62
CALLS = ("Send", "Isend", "Recv", "Irecv", "Sendrecv", "Probe", "Barrier", "Allreduce")


class Traced(Wrapper):
    """Wraps a communicator and those made from it; traces from `begin` to `end`.

        comm = Traced(world());  comm.align();  comm.begin();  …;  comm.end()
        timeline = comm.timeline()      # of all ranks, on rank 0

    The timeline has an Interval for each call that may wait, and a Message for each
    message. Tracing sends nothing and takes no virtual time before `timeline`. While it
    is off, the methods in CALLS are those of the wrapped communicator. No message may
    be in transit at `begin`: its receive would be matched with a later send.
    """

    def __init__(self, comm: Comm, origin: "Traced | None" = None, color: int = 0):
        super().__init__(comm)
        self.platform = self.platform._replace(
            shared_window=self.shared_window, compute=self.compute
        )
        self.trace: RankTrace = origin.trace if origin else RankTrace(self.comm)
        # All members make communicators in the same order: they compute equal groups.
        self.children = 0
        self.group: int = 0
        if origin:
            self.group = hash((origin.group, origin.children, color))
        self.trace.members.append((self.group, self.rank))
        self.trace.comms.add(self)
        self.switch(self.trace.on)

    # Start and stop.

    def align(self) -> None:
        """Compare the clocks of real ranks; collective. Virtual ranks share a clock."""
        if not self.platform.virtual:
            for _ in range(BARRIERS):
                self.comm.Barrier()
                self.trace.barrier_times.append(self.Wtime())

    def begin(self, limit: int = NO_LIMIT) -> None:
        """Start tracing; stop after a number of intervals of this rank."""
        self.trace.limit = len(self.trace.calls) + limit
        self.trace.switch(True)

    def end(self) -> None:
        """Stop tracing."""
        self.trace.switch(False)

    def switch(self, on: bool) -> None:
        """Use the traced methods in CALLS, or those of the wrapped communicator."""
        for name in CALLS:
            if on:
                vars(self).pop(name, None)
            else:
                vars(self)[name] = getattr(self.comm, name)

    def timeline(self) -> Timeline | None:
        """Return the timeline of all ranks on rank 0, None elsewhere; collective."""
        return collect(self.trace)

    # Entries of the trace.

    def add_interval(self, name: str, start: float, end: float) -> None:
        """Trace an interval if tracing is on; also called by Timers."""
        trace = self.trace
        if trace.on:
            trace.calls.append((name, start, end))
            if len(trace.calls) >= trace.limit:
                trace.switch(False)

    def trace_call(self, name: str, call: Callable[..., Any], *args: Any) -> Any:
        """Return the result of a call, and trace its interval."""
        start = self.Wtime()
        result = call(*args)
        self.add_interval(name, start, self.Wtime())
        return result

    def add_send(self, buffer: Any, dest: int, tag: int, time: float) -> None:
        nbytes = sent_nbytes(buffer, dest)
        self.trace.sends.append([self.group, dest, tag, nbytes, time])

    def add_receive(self, source: int, tag: int) -> list:
        """Add a posted receive and return its entry, to pass to `set_received`."""
        entry = [self.group, source, tag, 0, np.nan]
        self.trace.receives.append(entry)
        return entry

    def set_received(self, entry: list, status: Any) -> None:
        """Set the time of a receive, and its source and tag if there is a status."""
        if status is not None:
            entry[1:3] = status.Get_source(), status.Get_tag()
        entry[4] = self.Wtime()

    # Messages.

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        start = self.Wtime()
        self.add_send(buf, dest, tag, start)
        self.comm.Send(buf, dest, tag)
        self.add_interval("Send", start, self.Wtime())

    def Recv(
        self, buf: Any, source: int = ANY, tag: int = ANY, status: Any = None
    ) -> None:
        source, tag = self.pattern(source, tag)
        status = status_for(status, source, tag)
        start, entry = self.Wtime(), self.add_receive(source, tag)
        self.comm.Recv(buf, source, tag, status)
        self.set_received(entry, status)
        self.add_interval("Recv", start, self.Wtime())

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
        source, recvtag = self.pattern(source, recvtag)
        status = status_for(status, source, recvtag)
        start, entry = self.Wtime(), self.add_receive(source, recvtag)
        self.add_send(sendbuf, dest, sendtag, start)
        self.comm.Sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag, status)
        self.set_received(entry, status)
        self.add_interval("Sendrecv", start, self.Wtime())

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> "TracedRequest":
        self.add_send(buf, dest, tag, self.Wtime())
        return TracedRequest(self, self.comm.Isend(buf, dest, tag), None)

    def Irecv(self, buf: Any, source: int = ANY, tag: int = ANY) -> "TracedRequest":
        source, tag = self.pattern(source, tag)
        entry = self.add_receive(source, tag)
        return TracedRequest(self, self.comm.Irecv(buf, source, tag), entry)

    def Probe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> None:
        self.trace_call("Probe", self.comm.Probe, source, tag, status)

    def Waitany(self, requests: Sequence[Any], status: Any = None) -> int:
        status = status or StrictStatus()
        inner = unwrap(requests, TracedRequest)
        index = self.trace_call("Waitany", self.comm.Waitany, inner, status)
        if index >= 0 and isinstance(requests[index], TracedRequest):
            requests[index].complete(status)
        return index

    def Waitall(self, requests: Sequence[Any]) -> None:
        self.trace_call("Waitall", self.wait_for_all, requests)

    def wait_for_all(self, requests: Sequence[Any]) -> None:
        for request in requests:
            if isinstance(request, TracedRequest):
                request.finish(request.request.Wait, None)
            else:
                request.Wait()

    # Collective calls.

    def Barrier(self) -> None:
        self.trace_call("Barrier", self.comm.Barrier)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = np.add) -> None:
        self.trace_call("Allreduce", self.comm.Allreduce, sendbuf, recvbuf, op)

    def Split(self, color: int = 0, key: int = 0) -> Any:
        comm = self.trace_call("Split", self.comm.Split, color, key)
        return self.child(comm, color)

    def Split_type(self, split_type: int = SHARED, key: int = 0) -> "Traced":
        host = self.platform.hosts()[self.rank]
        comm = self.trace_call("Split_type", self.comm.Split_type, split_type, key)
        return self.child(comm, host)

    def Dup(self) -> "Traced":
        return self.child(self.trace_call("Dup", self.comm.Dup), 0)

    def Shrink(self) -> "Traced":
        return self.child(self.trace_call("Shrink", self.comm.Shrink), 0)

    def child(self, comm: Comm, color: int) -> Any:
        self.children += 1
        return Traced(comm, self, color) if comm else comm

    # The platform.

    def compute(self, seconds: float, unless: Any = None) -> bool:
        return self.comm.platform.compute(seconds, *unwrap([unless], TracedRequest))

    def shared_window(self, nbytes: int) -> Window:
        allocate = self.comm.platform.shared_window
        return TracedWindow(self, self.trace_call("shared_window", allocate, nbytes))


class TracedRequest(WrappedRequest):
    """A request that traces its Wait and the arrival of its message."""

    def __init__(self, comm: Traced, request: Any, entry: list | None):
        super().__init__(comm, request)
        self.entry = entry  # of a receive without a message in the trace, else None

    def Wait(self, status: Any = None) -> bool:
        return self.comm.trace_call("Wait", self.finish, self.request.Wait, status)

    def Test(self, status: Any = None) -> bool:
        return self.finish(self.request.Test, status)

    def finish(self, call: Callable[..., bool], status: Any) -> bool:
        """Call Wait or Test; trace the arrival of a message."""
        if self.entry:
            _, source, tag, *_ = self.entry
            status = status_for(status, source, tag)
        done = call(status)
        if done:
            self.complete(status)
        return done

    def complete(self, status: Any) -> None:
        """Trace the arrival of the message, once."""
        if self.entry:
            self.comm.set_received(self.entry, status)
            self.entry = None


class TracedWindow:
    """A shared window whose barriers are traced."""

    def __init__(self, comm: Traced, window: Window):
        self.comm, self.window = comm, window
        self.parts = window.parts

    def barrier(self, pause: Callable[[], object]) -> None:
        if self.comm.trace.on:
            self.comm.trace_call("window barrier", self.window.barrier, pause)
        else:
            self.window.barrier(pause)

    def Free(self) -> None:
        self.window.Free()
