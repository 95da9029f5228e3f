"""The ranks whose messages a server has refused.

    rank                          server
      │ ── a malformed message ───► │ counts it; no longer waits for the rank
      │ ◄─ REFUSED ──────────────── │ received by the rank's next pull
      │ ── any message ───────────► │ counts it

A rank receives one refusal, in place of the reply to its next pull. Values that it
sends are received and dropped, so that its sends complete.
"""

from typing import Any, NamedTuple

import numpy as np

from dml.types import Comm
from dml.wire.comm.tags import Tag
from dml.wire.server.header import REFUSED

HEAD = np.array([0, 0, 0, REFUSED])  # of a reply, which no rows follow


class Refusal(NamedTuple):
    """The refusal of the messages of a rank."""

    reason: str  # of the first one
    messages: int  # number of refused messages


class Refusals:
    """Counts refused messages by rank, and notifies the ranks.

    comm: the ranks.
    """

    def __init__(self, comm: Comm):
        self.comm = comm
        self.by_rank: dict[int, Refusal] = {}
        self.notified: dict[int, Any] = {}  # sends of refusals, by rank

    def add(self, rank: int, reason: str, notify: bool = True) -> bool:
        """Count a refused message; notify its rank, once. Return whether it does."""
        first = self.by_rank.get(rank, Refusal(reason, 0))
        self.by_rank[rank] = first._replace(messages=first.messages + 1)
        is_new = notify and rank not in self.notified
        if is_new:
            self.notified[rank] = self.comm.Isend(HEAD, rank, Tag.VALUES)
        return is_new
