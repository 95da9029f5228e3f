"""Ranks that are a worker and a server: they serve in waits and between gradients.

rank 0   gradient ─ poll ─ gradient ─ poll ─ wait for rows and serve
                     ▲                 ▲          ▲      ▲
                     pulls and pushes of other workers
"""

from typing import Any

from dml.types import Comm
from dml.wire.comm.plain import as_comm
from dml.wire.server.server import Server


class Colocated:
    """Handles messages to this rank's server while its worker waits.

    comm: the ranks.
    server: the server of this rank.
    """

    def __init__(self, comm: Comm, server: Server):
        self.comm, self.server = as_comm(comm), server

    def poll(self) -> None:
        """Handle all messages that have arrived."""
        self.server.handle_arrived()

    def wait(self, requests: list[Any]) -> None:
        """Wait until all requests have completed; handle messages meanwhile."""
        remaining = list(requests)
        while remaining and self.server.active:
            completed = self.server.handle_next(*remaining)
            if completed >= 0:
                del remaining[completed]
        self.comm.Waitall(remaining)

    def finish(self) -> None:
        """Handle messages until no more will follow."""
        while self.server.active:
            self.server.handle_next()
