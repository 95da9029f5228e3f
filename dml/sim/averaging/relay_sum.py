"""RelaySum evaluated for all ranks of a tree at once."""

from typing import NamedTuple

import numpy as np

from dml.wire.plans.averaging.faults import LOST, NO_FAULTS, Faults, arrivals
from dml.wire.plans.trees import Tree


class Transit(NamedTuple):
    """Sums that arrive later: edges, rounds of arrival, numbers of terms, sums."""

    round: int
    edge: np.ndarray
    arrival: np.ndarray
    terms: np.ndarray
    sums: np.ndarray


class Relayed:
    """The latest sum on each directed edge of a tree; edge c and c + p - 1 are a pair.

    Edge c leads from rank c + 1 to its parent, edge c + p - 1 back.
    """

    def __init__(self, tree: Tree):
        child = np.arange(1, tree.size)
        parent = tree.parent(child)
        self.source = np.concatenate([child, parent])
        self.dest = np.concatenate([parent, child])
        self.reverse = np.roll(np.arange(2 * len(child)), len(child))
        self.terms = np.zeros(2 * len(child), np.int64)
        self.sums = np.zeros(2 * len(child))
        self.sent = np.full(2 * len(child), -1)  # round of the latest sum
        self.transit: list[Transit] = []

    def received(self, numbers: np.ndarray, size: int) -> np.ndarray:
        """Return the sums over all edges to each rank."""
        return np.bincount(self.dest, numbers, minlength=size)


def relay_sum(
    values: np.ndarray,
    tree: Tree,
    t: int,
    state: Relayed | None = None,
    faults: Faults = NO_FAULTS,
    start: float = 0.0,
) -> Relayed:
    """Replace all values by the relayed means in round t; return the latest sums.

    Args:
      values: Value of every rank.
      tree: The tree.
      t: Number of the round.
      state: Latest sums; None in round 0.
      faults: Losses, delays and absences.
      start: Value that stands for ranks whose sums have not arrived.
    """
    state, size = Relayed(tree) if state is None else state, tree.size
    sums = (values + state.received(state.sums, size))[state.source]
    terms = (1 + state.received(state.terms, size))[state.source]
    state.transit.append(
        Transit(
            t,
            np.arange(len(state.source)),
            arrivals(faults, t, state.source, state.dest),
            (terms - state.terms[state.reverse]).astype(np.int64),
            sums - state.sums[state.reverse],
        )
    )
    for one in state.transit:
        edge = one.edge[one.arrival == t]
        newer = edge[state.sent[edge] < one.round]
        state.sent[newer] = one.round
        state.terms[newer] = one.terms[newer]
        state.sums[newer] = one.sums[newer]
    state.transit = [
        one for one in state.transit if (one.arrival[one.arrival != LOST] > t).any()
    ]
    values += state.received(state.sums, size)
    values += (size - 1 - state.received(state.terms, size)) * start
    values /= size
    return state
