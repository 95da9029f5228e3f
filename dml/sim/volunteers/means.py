"""Means of the rows of a matrix inside groups, in place."""

import numpy as np

CHUNK = 4096  # rows that are copied at once


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
