"""A communicator that counts what this rank sends: messages and bytes."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from dml.types import ANY, Comm, Request
from dml.wire.messages.reduce_scatter import all_gather
from dml.wire.messages.wrapper import Wrapper


class Metered(Wrapper):
    """Wraps a communicator; counts by (operation, peer), also on what it splits.

    Memory registered with a communicator is known to that communicator: allocate on
    the metered one what the metered one shall reduce.
    """

    def __init__(self, comm: Comm, origin: "Metered | None" = None):
        super().__init__(comm)
        self.messages: Counter = origin.messages if origin else Counter()
        self.bytes: Counter = origin.bytes if origin else Counter()
        # the ranks' numbers in the outermost group
        self.names: Sequence[int] = range(comm.size)
        if origin:
            names = np.zeros(comm.size, np.int64)
            names[comm.rank] = origin.names[origin.rank]
            all_gather(comm, names)
            self.names = names.tolist()

    def wrap(self, comm: Comm) -> "Metered":
        return Metered(comm, self)

    @property
    def bytes_sent(self) -> int:
        return sum(self.bytes.values())

    @property
    def messages_sent(self) -> int:
        return sum(self.messages.values())

    def count(self, operation: str, buffer: np.ndarray, dest: int) -> None:
        key = (operation, self.names[dest])
        self.messages[key] += 1
        self.bytes[key] += buffer.nbytes

    def Send(self, buf: np.ndarray, dest: int, tag: int = 0) -> None:
        self.count("Send", buf, dest)
        self.comm.Send(buf, dest, tag)

    def Isend(self, buf: np.ndarray, dest: int, tag: int = 0) -> Request:
        self.count("Isend", buf, dest)
        return self.comm.Isend(buf, dest, tag)

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
        self.count("Sendrecv", sendbuf, dest)
        self.comm.Sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag, status)
