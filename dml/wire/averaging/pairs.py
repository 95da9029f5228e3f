"""Asynchronous averages of pairs of ranks (AD-PSGD, Lian 2018).

active   ──x_a──┐    computes        ┌─► x_a ← x_a - d
passive         └─► d = (x_a - x_p)/2
                    x_p ← x_p + d    both are (x_a + x_p)/2 plus later updates

An active rank has at most one pending request, and computes between the request and
the reply. A passive rank replies between its updates. The changes +d and -d conserve
the sum of the values of all ranks, except for rounding, and do not depend on updates
between the request and the reply.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dml.types import ANY, Comm, Status
from dml.types.messages import check_nbytes
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.plans.averaging.sides import Side

NOTHING = np.empty(0, np.uint8)  # message after the last request of an active rank


def pair_averages(
    comm: Comm, side: Side, values: np.ndarray, seed: int = 0
) -> "Active | Passive":
    """Return the object that averages the values of this rank with its neighbours.

    `Active` and `Passive` have the same methods. `exchange` is called between updates
    and does not wait: an active rank applies an arrived reply, and sends a request if
    no request is pending; a passive rank replies to the requests that have arrived.
    `settle` is collective: no message is in transit after it. A barrier must follow.

    Per request: 2 messages of n values, of which each rank sends one: 2(α + nβ).

    Args:
      comm: Ranks.
      side: Side of this rank: active or passive, and its neighbours.
      values: Vector with the length and dtype of all values.
      seed: Random seed of the choice of neighbours.
    """
    comm = as_comm(comm)
    # a request of no values would be a message that no request follows
    neighbours = side.neighbours if len(values) else []
    if side.active:
        return Active(comm, neighbours, values, seed)
    return Passive(comm, neighbours, values)


class Active:
    """The requests of an active rank.

    Attributes:
      averages: Number of averages since the last `reset`.
      staleness: Sum over these averages of the number of calls of `exchange` from the
        request to the reply, which is the number of updates in between.
    """

    def __init__(
        self, comm: Comm, neighbours: Sequence[int], values: np.ndarray, seed: int
    ):
        self.comm, self.neighbours, self.seed = comm, neighbours, seed
        self.request, self.reply = np.empty_like(values), np.empty_like(values)
        self.pending: list[Any] = []  # send of the request and receive of the reply
        self.age = self.averages = self.staleness = 0

    def exchange(self, values: np.ndarray, t: int) -> None:
        """Apply an arrived reply; send the next request to a random neighbour.

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
        # order matters: the receive is posted first, so that the reply does not wait
        receive = self.comm.Irecv(self.reply, passive, Tag.PAIR)
        self.pending = [self.comm.Isend(self.request, passive, Tag.PAIR), receive]

    def finish(self, values: np.ndarray) -> None:
        self.comm.Waitall(self.pending)
        values -= self.reply
        self.averages, self.staleness = self.averages + 1, self.staleness + self.age
        self.pending = []

    def settle(self, values: np.ndarray) -> None:
        """Wait for the pending reply; send NOTHING to all neighbours."""
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
        """Reply to the requests that have arrived.

        Args:
          values: Values of this rank, changed in place.
          t: Number of the call; not used.
        """
        while self.neighbours and self.comm.Iprobe(ANY, Tag.PAIR, self.status):
            self.serve(values)

    def serve(self, values: np.ndarray) -> None:
        """Receive the probed message; reply if it is a request."""
        active = self.status.Get_source()
        if not self.status.Get_count():
            self.comm.Recv(NOTHING, active, Tag.PAIR)
            self.finished += 1
            return
        check_nbytes(self.status, self.comm.rank, self.request.nbytes)
        self.comm.Recv(self.request, active, Tag.PAIR)
        change = (self.request - values) * self.half
        values += change
        if active in self.replies:  # complete, as its receiver has sent a new request
            self.replies[active].Wait()
        self.replies[active] = self.comm.Isend(change, active, Tag.PAIR)

    def settle(self, values: np.ndarray) -> None:
        """Reply to requests until all neighbours have sent NOTHING."""
        while self.finished < len(self.neighbours):
            self.comm.Probe(ANY, Tag.PAIR, self.status)
            self.serve(values)
        self.finished = 0
        self.comm.Waitall(list(self.replies.values()))
        self.replies.clear()

    def reset(self) -> tuple[int, int]:
        """Return (0, 0): active ranks count all averages."""
        return 0, 0
