"""Nonblocking sends, and one posted receive from any source.

A malformed message is dropped and counted, and from then on all messages of its sender
are dropped and counted, too.
"""

from collections import Counter
from typing import Any

import numpy as np

from dml.types import ANY, Comm, Status
from dml.wire.comm.tags import Tag
from dml.wire.volunteers.messages import NBYTES, Message, unpack, well_formed
from dml.wire.volunteers.settings import Settings


class Mailbox:
    """The sends and receives of a peer; waiting uses no processor time.

    The send of a large message completes only if its receiver receives it. Sends to
    vanished peers stay in `sending`, with their buffers, until `close`.

    Args:
      comm: The ranks.
      nbytes: Largest body of a message.
      settings: Settings of the peers.

    Attributes:
      dropped: Number of dropped messages by sender, of those that have sent a
        malformed message.
    """

    def __init__(self, comm: Comm, nbytes: int, settings: Settings):
        self.comm, self.settings, self.status = comm, settings, Status()
        self.dropped: Counter[int] = Counter()
        self.buffer = np.empty(NBYTES + nbytes, np.uint8)
        self.sending: list[tuple[Any, np.ndarray]] = []
        self.request = comm.Irecv(self.buffer, ANY, Tag.VOLUNTEERS)
        self.unread = True  # the buffer belongs to the request

    def send(self, dest: int, message: np.ndarray) -> None:
        """Start to send a message; its buffer must not change before completion."""
        self.sending.append((self.comm.Isend(message, dest, Tag.VOLUNTEERS), message))

    def receive(self, until: float) -> Message | None:
        """Return the next message; None if none arrives before the time `until`."""
        while True:
            if not self.unread:
                self.request = self.comm.Irecv(self.buffer, ANY, Tag.VOLUNTEERS)
                self.unread = True
            if not self.arrives(until):
                return None
            self.unread = False
            message = self.accepted()
            if message is not None:
                return message

    def arrives(self, until: float) -> bool:
        """Return whether the posted receive completes before the time `until`."""
        seconds, platform = until - self.comm.Wtime(), self.comm.platform
        if seconds <= 0:
            return self.Test()
        if platform.virtual:
            return not platform.compute(seconds, self.request) and self.Test()
        # MPI gives the status of a request once, in the test that completes it
        return not platform.compute(seconds, self)

    def Test(self) -> bool:
        return self.request.Test(self.status)

    def accepted(self) -> Message | None:
        """Return the received message; None if it is dropped."""
        source, count = self.status.source, self.status.count
        fits = NBYTES <= count <= len(self.buffer)  # TOO_LONG is negative
        if fits and source not in self.dropped:
            message = unpack(self.buffer[:count])
            if message.head.run != self.settings.run and message.head.sender == source:
                return None  # of a peer of another run
            if well_formed(message, source, self.comm.size, self.settings.width):
                return message
        self.dropped[source] += 1
        return None

    def release_sent(self) -> None:
        """Release the buffers of completed sends."""
        self.sending = [sent for sent in self.sending if not sent[0].Test()]

    def close(self) -> None:
        """Cancel the receive; incomplete sends stay with the communicator."""
        if self.unread:
            self.request.Cancel()
            self.request.Wait(self.status)
        self.comm.cache.abandoned += self.sending
