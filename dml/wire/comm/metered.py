"""A communicator that counts what this rank sends: messages and bytes."""

from typing import Any, cast

import numpy as np

from dml.types import ANY, Comm, CountedComm, Request
from dml.types.messages import sent_nbytes
from dml.wire.comm.wrapper import Wrapper


class Metered(Wrapper):
    """Wraps a communicator; communicators split from it add to the same counts.

    Memory is registered with one communicator: allocate a buffer on the communicator
    that reduces it, here the Metered one.
    """

    def __init__(self, comm: Comm, origin: "Metered | None" = None):
        super().__init__(comm)
        self.sent: list[int] = origin.sent if origin else [0, 0]  # messages, bytes

    def wrap(self, comm: Comm) -> "Metered":
        return type(self)(comm, self)

    @property
    def messages_sent(self) -> int:
        return self.sent[0]

    @property
    def bytes_sent(self) -> int:
        return self.sent[1]

    def count(self, operation: str, buffer: np.ndarray, dest: int) -> None:
        """Count a message; subclasses may record its fields."""
        sent = self.sent
        try:
            if dest >= 0:  # else PROC_NULL
                sent[1] += buffer.nbytes
                sent[0] += 1
        except (AttributeError, TypeError):  # no array, or not valid
            sent[1] += sent_nbytes(buffer, dest)
            sent[0] += 1

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


def counted(comm: Comm) -> CountedComm:
    """Return the communicator if it counts bytes, else its Metered, made once."""
    if hasattr(comm, "bytes_sent"):
        return cast(CountedComm, comm)
    if comm.cache.counted is None:
        comm.cache.counted = Metered(comm)
    return cast(CountedComm, comm.cache.counted)


def count_copy(comm: Comm, buffer: np.ndarray, dest: int) -> None:
    """Count values that reach a rank through shared memory, as a message with them."""
    layer = comm
    while isinstance(layer, Wrapper):
        if isinstance(layer, Metered):
            layer.count("Isend", buffer, dest)
        layer = layer.comm


def uncounted(comm: Comm) -> Comm:
    """Return the communicator below all wrappers that count, for measurements.

    Its messages are no part of the program. Its registered memory and groups are those
    of another communicator than `comm`.
    """
    inner = layer = comm
    while isinstance(layer, Wrapper):
        if isinstance(layer, Metered):
            inner = layer.comm
        layer = layer.comm
    return inner
