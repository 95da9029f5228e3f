"""Ranks that are a worker and a server: they serve in waits and between gradients.

rank 0   gradient ─ poll ─ gradient ─ poll ─ wait for rows ░░ serve ░░
                      ▲ others' pulls and pushes ▲        ▲
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from dml.types import ANY, Comm, Status
from dml.wire.comm.tags import Tag


class Colocated:
    """The receive of messages to this rank's server while the rank waits.

    `handle(source, message)` handles a message and returns whether more will follow.
    """

    def __init__(
        self, comm: Comm, inbox: np.ndarray, handle: Callable[[int, np.ndarray], bool]
    ):
        self.comm, self.inbox, self.handle = comm, inbox, handle
        self.receive: Any = None  # posted while this rank waits; it may stay so
        self.more = True
        self.status = Status()

    def handle_inbox(self) -> None:
        """Handle the message in the inbox."""
        self.receive = None
        self.more = self.handle(self.status.source, self.inbox)

    def next_receive(self) -> Any:
        """Return the receive of the next message."""
        if self.receive is None:
            self.receive = self.comm.Irecv(self.inbox, ANY, Tag.SERVER)
        return self.receive

    def poll(self) -> None:
        """Handle all messages that have arrived."""
        if self.receive is not None:
            if not self.receive.Test(self.status):
                return
            self.handle_inbox()
        while self.more and self.comm.Iprobe(ANY, Tag.SERVER):
            self.comm.Recv(self.inbox, ANY, Tag.SERVER, self.status)
            self.handle_inbox()

    def wait(self, requests: list[Any]) -> None:
        """Return when all requests have completed; handle messages meanwhile."""
        left = list(requests)
        while left and self.more:
            place = self.comm.Waitany([*left, self.next_receive()], self.status)
            if place == len(left):
                self.handle_inbox()
            else:
                del left[place]
        self.comm.Waitall(left)

    def finish(self) -> None:
        """Handle messages until no more will follow."""
        while self.more:
            self.next_receive().Wait(self.status)
            self.handle_inbox()
