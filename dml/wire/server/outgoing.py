"""Sends without a wait; a short one is kept until the next one to the same rank."""

from typing import Any

import numpy as np

from dml.types import Comm
from dml.wire.comm.tags import Tag
from dml.wire.server.envelope import Envelope


class Outgoing:
    """Sends envelopes; keeps the buffers of those that may be in transit.

    comm: Surviving communicator, whose sends to dead ranks complete.
    tag: tag of the envelopes.
    """

    def __init__(self, comm: Comm, tag: Tag):
        self.comm, self.tag = comm, tag
        self.last: dict[int, tuple[Any, np.ndarray]] = {}  # short envelopes, by rank

    def send(self, message: np.ndarray, rank: int) -> Any:
        """Return the request of a packed envelope, which the caller completes."""
        return self.comm.Isend(message, rank, self.tag)

    def notify(self, envelope: Envelope, rank: int) -> None:
        """Send an envelope without content, which MPI buffers."""
        message = envelope.pack()
        request = self.send(message, rank)
        if rank in self.last:
            self.last[rank][0].Wait()
        self.last[rank] = request, message
