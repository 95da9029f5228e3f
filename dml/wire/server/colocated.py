"""Ranks that are a worker and a server: they serve in waits and between gradients.

rank 0   gradient ─ poll ─ gradient ─ poll ─ wait for rows and serve
                     ▲                 ▲          ▲      ▲
                     pulls and pushes of other workers
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from dml.types import ANY, Comm, Status
from dml.wire.comm.tags import Tag


class Colocated:
    """Handles messages to this rank's server while its worker waits.

    comm: the ranks.
    inbox: buffer for a message.
    handle: (source, message, its length) -> whether more messages will follow.
    """

    def __init__(
        self,
        comm: Comm,
        inbox: np.ndarray,
        handle: Callable[[int, np.ndarray, int], bool],
    ):
        self.comm, self.inbox, self.handle = comm, inbox, handle
        self.receive: Any = None  # the posted receive, which may outlast a wait
        self.more = True  # whether more messages will follow
        self.status = Status()

    def handle_inbox(self) -> None:
        """Handle the message in the inbox."""
        self.receive = None
        self.more = self.handle(self.status.source, self.inbox, self.status.count)

    def next_receive(self) -> Any:
        """Return the posted receive of the next message; post it if necessary."""
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
        """Wait until all requests have completed; handle messages meanwhile."""
        remaining = list(requests)
        while remaining and self.more:
            completed = self.comm.Waitany(
                [*remaining, self.next_receive()], self.status
            )
            if completed == len(remaining):  # the receive of a message to the server
                self.handle_inbox()
            else:
                del remaining[completed]
        self.comm.Waitall(remaining)

    def finish(self) -> None:
        """Handle messages until no more will follow."""
        while self.more:
            self.next_receive().Wait(self.status)
            self.handle_inbox()
