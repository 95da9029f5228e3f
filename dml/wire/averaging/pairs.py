"""Averages of pairs of ranks without rounds in common (AD-PSGD, Lian 2018).

active   ──x_a──┐    computes        ┌─► x_a ← x_a - d
passive         └─► d = (x_a - x_p)/2
                    x_p ← x_p + d    both then differ from (x_a + x_p)/2 by own updates

An active rank continues to compute between its request and the reply; it has one
request at a time. A passive rank replies between its updates. Changes +d and -d
conserve the sum of all values, except for rounding, and do not depend on values that
ranks add meanwhile.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dml.types import ANY, Comm, Status
from dml.wire.comm.tags import Tag
from dml.wire.plans.sides import Side

NOTHING = np.empty(0, np.uint8)  # message of an active rank that sends no more requests


def pair_averages(
    comm: Comm, side: Side, values: np.ndarray, seed: int = 0
) -> "Active | Passive":
    """Return the averages of this rank with its neighbours.

    Both classes have the same methods. `exchange` is called between updates and does
    not wait: an active rank adds an arrived reply, and sends a request if none is
    pending; a passive rank serves the requests that have arrived. `settle` is
    collective: after it no message is in transit. A barrier must follow.

    Per request: 2 messages of n values, of which each rank sends one: 2(α + nβ).

    Args:
      comm: Ranks.
      side: Side of this rank.
      values: Vector with the length and dtype of all values.
      seed: Random seed of the choice of neighbours.
    """
    # a request of no values would be a message that no request follows
    neighbours = side.neighbours if len(values) else []
    if side.active:
        return Active(comm, neighbours, values, seed)
    return Passive(comm, neighbours, values)


class Active:
    """The requests of an active rank.

    Attributes:
      averages: Number of averages since the last `reset`.
      staleness: Sum over these averages of the calls of `exchange` between request and
        reply, which is the number of updates computed before the average was known.
    """

    def __init__(
        self, comm: Comm, neighbours: Sequence[int], values: np.ndarray, seed: int
    ):
        self.comm, self.neighbours, self.seed = comm, neighbours, seed
        self.request, self.reply = np.empty_like(values), np.empty_like(values)
        self.pending: list[Any] = []  # send of the request and receive of the reply
        self.age = self.averages = self.staleness = 0

    def exchange(self, values: np.ndarray, t: int) -> None:
        """Add the reply if it has arrived; then request an average of a neighbour.

        Args:
          values: Values of this rank, changed in place.
          t: Number of the call, which determines the neighbour.
        """
        self.age += 1
        if self.pending and self.pending[1].Test():
            self.finish(values)
        if self.pending or not self.neighbours:
            return
        generator = np.random.default_rng((self.seed, self.comm.rank, t))
        passive = self.neighbours[int(generator.integers(len(self.neighbours)))]
        self.request[:], self.age = values, 0
        # order matters: a reply finds its receive posted, so that it needs no wait
        receive = self.comm.Irecv(self.reply, passive, Tag.PAIR)
        self.pending = [self.comm.Isend(self.request, passive, Tag.PAIR), receive]

    def finish(self, values: np.ndarray) -> None:
        self.comm.Waitall(self.pending)
        values -= self.reply
        self.averages, self.staleness = self.averages + 1, self.staleness + self.age
        self.pending = []

    def settle(self, values: np.ndarray) -> None:
        """Wait for the pending reply; notify all neighbours that no request follows."""
        if self.pending:
            self.finish(values)
        for passive in self.neighbours:
            self.comm.Send(NOTHING, passive, Tag.PAIR)

    def reset(self) -> tuple[int, int]:
        """Return the number of averages and the sum of staleness, and reset them."""
        counts = self.averages, self.staleness
        self.averages = self.staleness = 0
        return counts


class Passive:
    """The replies of a passive rank."""

    def __init__(self, comm: Comm, neighbours: Sequence[int], values: np.ndarray):
        self.comm, self.neighbours = comm, neighbours
        self.request, self.status = np.empty_like(values), Status()
        self.half = values.dtype.type(0.5)
        self.replies: dict[int, Any] = {}  # last reply to each neighbour
        self.finished = 0  # number of neighbours that send no more requests

    def exchange(self, values: np.ndarray, t: int) -> None:
        """Serve the requests that have arrived.

        Args:
          values: Values of this rank, changed in place.
          t: Number of the call, which is not read.
        """
        while self.neighbours and self.comm.Iprobe(ANY, Tag.PAIR, self.status):
            self.serve(values)

    def serve(self, values: np.ndarray) -> None:
        """Receive the probed message, and reply if it is a request."""
        active = self.status.Get_source()
        if not self.status.Get_count():
            self.comm.Recv(NOTHING, active, Tag.PAIR)
            self.finished += 1
            return
        self.comm.Recv(self.request, active, Tag.PAIR)
        change = (self.request - values) * self.half
        values += change
        if active in self.replies:  # complete, as its receiver has sent a new request
            self.replies[active].Wait()
        self.replies[active] = self.comm.Isend(change, active, Tag.PAIR)

    def settle(self, values: np.ndarray) -> None:
        """Serve until no active neighbour sends a request."""
        while self.finished < len(self.neighbours):
            self.comm.Probe(ANY, Tag.PAIR, self.status)
            self.serve(values)
        self.finished = 0
        self.comm.Waitall(list(self.replies.values()))
        self.replies.clear()

    def reset(self) -> tuple[int, int]:
        """Return no averages: those of active ranks include all."""
        return 0, 0
