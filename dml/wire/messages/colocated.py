"""Every rank a worker and a server at once: it serves while it waits, and in between.

rank 0   gradient ─ poll ─ gradient ─ poll ─ wait for rows ░░ serve ░░
                      ▲ others' pulls and pushes ▲        ▲
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from dml.types import ANY, Comm, Status
from dml.wire.messages.tags import Tag


class Colocated:
    """Owns the receive in which what goes to this rank's server arrives as it waits.

    `hear(source, message)` takes a message and says whether there will be more.
    """

    def __init__(
        self, comm: Comm, inbox: np.ndarray, hear: Callable[[int, np.ndarray], bool]
    ):
        self.comm, self.inbox, self.hear = comm, inbox, hear
        self.receive: Any = None  # posted while this rank waits; it may stay so
        self.more = True
        self.status = Status()

    def take(self) -> None:
        """Take the message that the inbox has."""
        self.receive = None
        self.more = self.hear(self.status.source, self.inbox)

    def posted(self) -> Any:
        """Return the receive of the next message."""
        if self.receive is None:
            self.receive = self.comm.Irecv(self.inbox, ANY, Tag.SERVER)
        return self.receive

    def poll(self) -> None:
        """Serve all that has come."""
        if self.receive is not None:
            if not self.receive.Test(self.status):
                return
            self.take()
        while self.more and self.comm.Iprobe(ANY, Tag.SERVER):
            self.comm.Recv(self.inbox, ANY, Tag.SERVER, self.status)
            self.take()

    def wait(self, requests: list[Any]) -> None:
        """Return when all requests are done; serve meanwhile."""
        left = list(requests)
        while left and self.more:
            place = self.comm.Waitany([*left, self.posted()], self.status)
            if place == len(left):
                self.take()
            else:
                del left[place]
        self.comm.Waitall(left)

    def finish(self) -> None:
        """Serve until there will be no more."""
        while self.more:
            self.posted().Wait(self.status)
            self.take()
