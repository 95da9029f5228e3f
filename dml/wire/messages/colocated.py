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
    """Owns the receive in which whatever goes to this rank's server arrives.

    `hear(source, message)` takes a message and says whether there will be more.
    """

    def __init__(
        self, comm: Comm, inbox: np.ndarray, hear: Callable[[int, np.ndarray], bool]
    ):
        self.comm, self.inbox, self.hear = comm, inbox, hear
        self.receive: Any = comm.Irecv(inbox, ANY, Tag.SERVER)

    def take(self, status: Status) -> None:
        more = self.hear(status.source, self.inbox)
        again = more and self.comm.Irecv(self.inbox, ANY, Tag.SERVER)
        self.receive = again or None

    def poll(self) -> None:
        """Serve all that has come."""
        status = Status()
        while self.receive is not None and self.receive.Test(status):
            self.take(status)

    def wait(self, requests: list[Any]) -> None:
        """Return when all requests are done; serve meanwhile."""
        left, status = list(requests), Status()
        while left and self.receive is not None:
            place = self.comm.Waitany([*left, self.receive], status)
            if place == len(left):
                self.take(status)
            else:
                del left[place]
        self.comm.Waitall(left)

    def finish(self) -> None:
        """Serve until there will be no more."""
        status = Status()
        while self.receive is not None:
            self.receive.Wait(status)
            self.take(status)
