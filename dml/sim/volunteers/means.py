"""Means of the rows of a matrix inside groups, in place."""

import numpy as np

from dml.sim.volunteers.rounds import Outcome
from dml.wire.plans.load_balance import integer_parts

CHUNK = 4096  # rows that are copied at once


def average(rows_PxN: np.ndarray, outcome: Outcome) -> None:
    """Average the vectors of all peers as a round does, in place."""
    label = outcome.label
    broken = np.zeros(label.max() + 1, bool)
    broken[label[outcome.vanished]] = True
    group_means(rows_PxN, label, outcome.inside & ~broken[label])
    inside = np.flatnonzero(outcome.inside & broken[label])
    for group in np.unique(label[inside]):  # others have no member left
        left = label[outcome.vanished] == group
        part_means(
            rows_PxN,
            inside[label[inside] == group],
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
    """Average in place in a group that has lost members.

    The parts of lost members stay local. Other parts have the mean of the members that
    have sent their values.

    Args:
      rows_PxN: Vector of each peer.
      stayed: Members that have stayed, at least one.
      vanished: Members that have vanished.
      contributed: Whether each of them had sent its values.
      shares: Share of each peer in its group.
    """
    members = np.sort(np.concatenate([stayed, vanished]))
    parts = integer_parts(shares[members], rows_PxN.shape[1])
    averaged = np.repeat(np.isin(members, stayed), parts)
    contributors = np.concatenate([stayed, vanished[contributed]])
    mean = rows_PxN[contributors].mean(0)
    rows_PxN[stayed] = np.where(averaged, mean, rows_PxN[stayed])


def group_means(rows_PxN: np.ndarray, label: np.ndarray, inside: np.ndarray) -> None:
    """Replace each row that is inside by the mean of the inside rows of its group.

    Args:
      rows_PxN: Vector of each peer, changed in place.
      label: Group of each peer.
      inside: Whether each peer takes part; others keep their vectors.
    """
    order = np.flatnonzero(inside)
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
    """Return the mean of the present rows, and their mean squared distance to it."""
    weights = (present / present.sum()).astype(rows_PxN.dtype)
    mean = weights @ rows_PxN
    squares = np.einsum("pn,pn->p", rows_PxN, rows_PxN)
    spread = float(weights @ squares) - float(mean @ mean)
    return mean, max(0.0, spread)
