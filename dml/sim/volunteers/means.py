"""Means of groups of rows of a matrix, in place."""

import numpy as np

from dml.sim.volunteers.rounds import Outcome
from dml.wire.plans.averaging.load_balance import integer_parts

CHUNK = 4096  # largest number of rows in a temporary copy, except for one group


def average(rows_PxN: np.ndarray, outcome: Outcome) -> None:
    """Apply the averages of a round to the vectors of all peers, in place."""
    label = outcome.label
    broken = np.zeros(label.max() + 1, bool)
    broken[label[outcome.vanished]] = True
    group_means(rows_PxN, label, outcome.included & ~broken[label])
    included = np.flatnonzero(outcome.included & broken[label])
    for group in np.unique(label[included]):  # groups with a member that stayed
        left = label[outcome.vanished] == group
        part_means(
            rows_PxN,
            included[label[included] == group],
            outcome.vanished[left],
            outcome.contributed[left],
            outcome.shares,
        )


def part_means(
    rows_PxN: np.ndarray,
    stayed: np.ndarray,
    vanished: np.ndarray,
    contributed: np.ndarray,
    shares: np.ndarray,
) -> None:
    """Average the vectors of a group that has lost members, in place.

    The parts that lost members own stay local. Each other part is replaced by the mean
    over the members that have sent their values.

    Args:
      rows_PxN: Vector of each peer.
      stayed: Peers that stayed until the end; at least one.
      vanished: Peers that left before the end.
      contributed: Whether each peer in `vanished` had sent its values.
      shares: Share of the vector that each peer reduces in its group.
    """
    members = np.sort(np.concatenate([stayed, vanished]))
    parts = integer_parts(shares[members], rows_PxN.shape[1])
    averaged = np.repeat(np.isin(members, stayed), parts)
    contributors = np.concatenate([stayed, vanished[contributed]])
    mean = rows_PxN[contributors].mean(0)
    rows_PxN[stayed] = np.where(averaged, mean, rows_PxN[stayed])


def group_means(rows_PxN: np.ndarray, label: np.ndarray, included: np.ndarray) -> None:
    """Replace each included row by the mean of the included rows of its group.

    Args:
      rows_PxN: Vector of each peer, changed in place.
      label: Group of each peer.
      included: Whether each peer takes part; the vectors of others do not change.
    """
    order = np.flatnonzero(included)
    order = order[np.argsort(label[order], kind="stable")]
    starts = np.flatnonzero(np.diff(label[order], prepend=-1))
    ends = np.append(starts[1:], len(order))
    first = 0
    while first < len(starts):
        # as many groups as fit in a chunk, at least one
        last = np.searchsorted(ends, starts[first] + CHUNK, side="right")
        last = max(first + 1, int(last))
        ranks = order[starts[first] : ends[last - 1]]
        at = starts[first:last] - starts[first]
        counts = ends[first:last] - starts[first:last]
        sums_GxN = np.add.reduceat(rows_PxN[ranks], at, axis=0)
        sums_GxN /= counts[:, None].astype(rows_PxN.dtype)
        rows_PxN[ranks] = np.repeat(sums_GxN, counts, axis=0)
        first = last


def consensus(rows_PxN: np.ndarray, present: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the mean of the present rows, and the mean squared distance to it."""
    weights = (present / present.sum()).astype(rows_PxN.dtype)
    mean = weights @ rows_PxN
    squares = np.einsum("pn,pn->p", rows_PxN, rows_PxN)
    spread = float(weights @ squares) - float(mean @ mean)
    return mean, max(0.0, spread)
