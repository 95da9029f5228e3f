"""A real communicator that sleeps while it waits: for ranks that outnumber the cores.

MPI's own waiting would take the core of a rank whose time to wake has come. A message
is seen up to a nap later: LOOK, or up to `longest`, a tenth of what was waited before.
"""

import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from dml.types import ANY, Comm, Request, Status
from dml.wire.messages.comm import LOOK
from dml.wire.messages.wrapper import Wrapper

TENTH = 0.1
Call = tuple[str, str, int, int, Any]  # what the watchdog says of a wait


class Nap:
    """A request whose Wait sleeps; `over` when it has been seen to be done."""

    def __init__(self, request: Request, wait: Callable[..., None], call: Call):
        self.request, self.wait, self.call = request, wait, call
        self.over = False

    def Test(self, status: Any = None) -> bool:
        self.over = self.over or self.request.Test(status)
        return self.over

    def Wait(self, status: Any = None) -> bool:
        self.wait(lambda: self.Test(status), self.call)
        return True


class Napping(Wrapper):
    """Wraps a communicator, which may be wrapped already."""

    def __init__(self, comm: Comm, longest: float = LOOK):
        super().__init__(comm)
        self.longest = longest
        innermost: Any = comm
        while isinstance(innermost, Wrapper):
            innermost = innermost.comm
        self.watched = innermost  # the watchdog looks at its call

    def wrap(self, comm: Comm) -> "Napping":
        return Napping(comm, self.longest)

    def wait(self, done: Callable[[], bool], call: Call) -> None:
        """Return when that is done; the watchdog sees for what."""
        if done():
            return
        self.watched.call, begun = call, time.perf_counter()
        waited = 0.0
        while True:
            time.sleep(min(max(LOOK, TENTH * waited), self.longest))
            if done():
                break
            waited = time.perf_counter() - begun
        self.watched.call = None

    def Isend(self, buf: np.ndarray, dest: int, tag: int = 0) -> Nap:
        call = ("Isend", "dest", dest, tag, buf)
        return Nap(self.comm.Isend(buf, dest, tag), self.wait, call)

    def Irecv(self, buf: np.ndarray, source: int = ANY, tag: int = ANY) -> Nap:
        call = ("Irecv", "source", source, tag, buf)
        return Nap(self.comm.Irecv(buf, source, tag), self.wait, call)

    def Send(self, buf: np.ndarray, dest: int, tag: int = 0) -> None:
        self.Isend(buf, dest, tag).Wait()

    def Recv(
        self,
        buf: np.ndarray,
        source: int = ANY,
        tag: int = ANY,
        status: Status | None = None,
    ) -> None:
        self.Irecv(buf, source, tag).Wait(status)

    def Sendrecv(
        self,
        sendbuf: np.ndarray,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY,
        recvtag: int = ANY,
        status: Status | None = None,
    ) -> None:
        receive = self.Irecv(recvbuf, source, recvtag)
        self.Send(sendbuf, dest, sendtag)
        receive.Wait(status)

    def Probe(
        self, source: int = ANY, tag: int = ANY, status: Status | None = None
    ) -> None:
        call = ("Probe", "source", source, tag, None)
        self.wait(lambda: self.comm.Iprobe(source, tag, status), call)

    def Waitany(self, requests: Sequence[Nap], status: Status | None = None) -> int:
        """Wait for the first that is done; return its place, -1 if all are over."""
        left = [(k, request) for k, request in enumerate(requests) if not request.over]
        found: list[int] = []

        def done() -> bool:
            # no further than to the first: who is tested is over
            found.extend(islice((k for k, one in left if one.Test(status)), 1))
            return bool(found)

        if left:
            self.wait(done, ("Waitany", "requests", len(left), 0, None))
        return found[0] if found else -1

    def Waitall(self, requests: Sequence[Nap]) -> None:
        for request in requests:
            request.Wait()

    def Barrier(self) -> None:
        met = self.platform.raw.Ibarrier()
        self.wait(met.Test, ("Barrier", "size", self.size, 0, None))
