"""Nonblocking sends, and one posted receive from any source."""

from typing import Any

import numpy as np

from dml.types import ANY, Comm
from dml.wire.comm.tags import Tag
from dml.wire.volunteers.messages import NBYTES, Message, unpack


class Mailbox:
    """The sends and receives of a peer; waiting uses no processor time.

    The send of a large message completes only if its receiver receives it. Sends to
    vanished peers stay in `sending`, with their buffers, until `close`.

    Args:
      comm: The ranks.
      nbytes: Largest body of a message.
    """

    def __init__(self, comm: Comm, nbytes: int):
        self.comm = comm
        self.buffer = np.empty(NBYTES + nbytes, np.uint8)
        self.sending: list[tuple[Any, np.ndarray]] = []
        self.request = comm.Irecv(self.buffer, ANY, Tag.VOLUNTEERS)
        self.unread = True  # the buffer belongs to the request

    def send(self, dest: int, message: np.ndarray) -> None:
        """Start to send a message; its buffer must not change before completion."""
        self.sending.append((self.comm.Isend(message, dest, Tag.VOLUNTEERS), message))

    def receive(self, until: float) -> Message | None:
        """Return the next message; None if none arrives before the time `until`."""
        if not self.unread:
            self.request = self.comm.Irecv(self.buffer, ANY, Tag.VOLUNTEERS)
            self.unread = True
        seconds = until - self.comm.Wtime()
        if seconds > 0:
            arrived = not self.comm.platform.compute(seconds, unless=self.request)
        else:
            arrived = self.request.Test()
        if not arrived:
            return None
        self.request.Wait()
        self.unread = False
        return unpack(self.buffer)

    def release_sent(self) -> None:
        """Release the buffers of completed sends."""
        self.sending = [sent for sent in self.sending if not sent[0].Test()]

    def close(self) -> None:
        """Cancel the receive; incomplete sends stay with the communicator."""
        if self.unread:
            self.request.Cancel()
            self.request.Wait()
        self.comm.cache.abandoned += self.sending
