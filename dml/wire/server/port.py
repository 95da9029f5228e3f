"""The communicator of a Server inside a replica, which passes messages to it.

chain ─► deliver ─► Server ─► answer ─► kept by the replica; sent if it is the tail
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dml.types import ANY, TOO_LONG, WITHDRAWN, Comm, Status
from dml.wire.comm.wrapper import Wrapper
from dml.wire.server.envelope import as_bytes


class Port(Wrapper):
    """Sends by a function; receives the messages of `deliver`.

    comm: communicator of all ranks, for rank numbers, clock and cache.
    """

    def __init__(self, comm: Comm):
        super().__init__(comm)
        # answer(buffer, worker, tag): set by the replica
        self.answer: Callable[[np.ndarray, int, int], object] = lambda *message: None
        self.posted: dict[int, deque[PortReceive]] = {}  # by worker

    def Isend(self, buf: np.ndarray, dest: int, tag: int = 0) -> Any:
        self.answer(buf, dest, tag)
        return PortReceive(self, as_bytes(buf)[:0], dest, tag)

    def Irecv(self, buf: np.ndarray, source: int = ANY, tag: int = ANY) -> Any:
        receive = PortReceive(self, buf.reshape(-1).view(np.uint8), source, tag)
        self.posted.setdefault(source, deque()).append(receive)
        return receive

    def Waitall(self, requests: Sequence[Any]) -> None:
        for request in requests:
            request.Wait()

    def deliver(self, content: np.ndarray, worker: int) -> int:
        """Complete the receive of a worker; return its count, WITHDRAWN without one."""
        if not self.posted.get(worker):
            return WITHDRAWN
        receive = self.posted[worker].popleft()
        fits = len(content) <= len(receive.buffer)
        if fits:
            receive.buffer[: len(content)] = content
        receive.status.count = len(content) if fits else TOO_LONG
        return receive.status.count


class PortReceive:
    """A receive, or a send, which is complete at once."""

    def __init__(self, port: Port, buffer: np.ndarray, peer: int, tag: int):
        self.port, self.buffer, self.peer, self.status = port, buffer, peer, Status()
        self.status.source, self.status.tag = peer, tag

    def Test(self, status: Any = None) -> bool:
        return self not in self.port.posted.get(self.peer, ()) and self.Wait(status)

    def Wait(self, status: Any = None) -> bool:
        if status is not None:
            vars(status).update(vars(self.status))
        return True

    def Cancel(self) -> None:
        posted = self.port.posted.get(self.peer, ())
        if posted and self in posted:
            posted.remove(self)
            self.status.count = WITHDRAWN
