"""RelaySum: sums relayed along the edges of a tree, with the number of their terms."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from dml.types import Comm
from dml.wire.averaging.exchange import (
    Incoming,
    Outgoing,
    Transit,
    exchange,
    floating,
)
from dml.wire.averaging.push_sum import HEAD
from dml.wire.comm.plain import as_comm
from dml.wire.plans.averaging.faults import LOST, NO_FAULTS, Faults, arrivals
from dml.wire.plans.trees import Tree


@dataclass
class RelaySum:
    """The latest sum from each neighbour, and messages in transit.

    Attributes:
      start: Value that stands for ranks whose sums have not arrived: the common start
        of the models, or 0 for gradients.
      sums: By neighbour: round in which the sum was sent, number of its terms, sum.
      transit: Messages in transit.
      size: Number of ranks of the tree.
    """

    start: Any = 0.0
    sums: dict[int, tuple[int, int, np.ndarray]] = field(default_factory=dict)
    transit: Transit = field(default_factory=Transit)
    size: int = 0

    @property
    def count(self) -> int:
        """Number of ranks whose values have arrived, with this rank."""
        return 1 + sum(terms for _, terms, _ in self.sums.values())


def relay_sum(
    comm: Comm,
    buffer: np.ndarray,
    tree: Tree,
    t: int,
    state: RelaySum | None = None,
    faults: Faults = NO_FAULTS,
) -> RelaySum:
    """Replace the own value by the relayed mean; return the latest sums (Vogels 2021).

        m_(k→i) ─►┐                     message to j: all sums but the one from j
        m_(l→i) ─►├─► m_(i→j) = x_i + Σ_(k≠j) m_(k→i)         counts likewise
            x_i ──┘
        x̄_i = (x_i + Σ_k m_(k→i) + (p - count) x_start) / p

    In a round a value advances by one edge. With constant values x_i, the mean is exact
    after as many rounds as the tree has edges between its most distant ranks: p - 1 for
    a chain, 2 for a star. A lost message is replaced by the latest one before it.
    With d neighbours: 1 round, d(n + 1) words per rank: d(α + nβ).

    Args:
      comm: The ranks.
      buffer: Floating-point values x of any length, equal on all ranks.
      tree: The tree.
      t: Number of the round.
      state: Sums, as returned by round t - 1; None in round 0, for a start of 0.
      faults: Losses, delays and absences.
    """
    comm, buffer = as_comm(comm), floating(comm, buffer)
    state = RelaySum() if state is None else state
    state.size = tree.size
    rank, near = comm.rank, tree.neighbours(comm.rank)
    up, down = edge_arrivals(tree, t, faults)
    messages = relayed(buffer, state, near)
    for neighbour, message in zip(near, messages, strict=True):
        child = max(rank, neighbour)
        reach, arrive = (up, down) if child == rank else (down, up)
        if reach[child] != LOST:
            state.transit.outgoing.append(
                Outgoing(reach[child], t, rank, neighbour, message)
            )
        if arrive[child] != LOST:
            state.transit.incoming.append(
                Incoming(arrive[child], t, neighbour, neighbour, 1.0)
            )
    for arrived, message in exchange(comm, state.transit, t, HEAD + buffer.nbytes):
        known = state.sums.get(arrived.source)
        if known is None or known[0] < arrived.round:
            terms = int(message[:HEAD].view(np.int64)[0])
            values = message[HEAD:].view(buffer.dtype)
            state.sums[arrived.source] = arrived.round, terms, values
    for neighbour in near:
        if neighbour in state.sums:
            buffer += state.sums[neighbour][2]
    missing = tree.size - state.count
    if missing:
        buffer += missing * np.asarray(state.start, buffer.dtype)
    buffer /= tree.size
    return state


@lru_cache(maxsize=64)
def edge_arrivals(tree: Tree, t: int, faults: Faults) -> tuple[list[int], list[int]]:
    """Return the rounds in which the messages of round t arrive, by child.

    Returns:
      The rounds of the messages to the parents, and of those from the parents.
    """
    child = np.arange(tree.size)
    parent = tree.parent(child)
    up = arrivals(faults, t, child, parent)
    return up.tolist(), arrivals(faults, t, parent, child).tolist()


def relayed(buffer: np.ndarray, state: RelaySum, near: list[int]) -> list[np.ndarray]:
    """Return the message to each neighbour: own value and all sums but its own sum.

    Sums before and after a neighbour are added, because a difference of sums would
    cancel digits.
    """
    known = [state.sums.get(neighbour, (0, 0, 0.0)) for neighbour in near]
    before, total_terms, total = [], 1, buffer
    for _, terms, values in known:
        before.append((total_terms, total))
        total_terms, total = total_terms + terms, total + values
    messages, after_terms, after = [], 0, 0.0
    for (terms, values), one in zip(reversed(before), reversed(known), strict=True):
        message = np.empty(HEAD + buffer.nbytes, np.uint8)
        message[:HEAD].view(np.int64)[0] = terms + after_terms
        message[HEAD:].view(buffer.dtype)[:] = values + after
        messages.append(message)
        after_terms, after = after_terms + one[1], after + one[2]
    return messages[::-1]
