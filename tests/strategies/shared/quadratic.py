"""A model in which each edge moves its rows towards targets, with x ≥ 0.

objective = mean over edges of ½ Σ |x_r - target_r|², over the rows r of the edge
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from dml.models.sparse.problem import leave_table as settle
from dml.models.sparse.problem import same_data as with_rate
from dml.types import Edges

__all__ = ["gradient", "move", "with_rate", "settle"]


class Pulls(NamedTuple):
    edges: Edges
    targets_NxD: np.ndarray  # of the rows, as edges.rows has them


def pulls(edges, rows, dim, dtype=np.float64):
    """Draw pairs of rows, and targets near a point that all edges share."""
    rng = np.random.default_rng(8)
    pairs = [np.sort(rng.choice(rows, 2, replace=False)) for _ in range(edges)]
    flat = np.concatenate(pairs).astype(np.uint32)
    shared_TxD = rng.uniform(0.5, 1, (rows, dim))
    noise_NxD = 0.1 * rng.standard_normal((len(flat), dim))
    targets_NxD = (shared_TxD[flat] + noise_NxD).astype(dtype)
    return Pulls(Edges(np.arange(0, len(flat) + 1, 2), flat), targets_NxD)


@njit(nogil=True, cache=True)
def gradient(table, data, e, t, grads):
    first, last, total = data.edges.starts[e], data.edges.starts[e + 1], 0.0
    for k in range(first, last):
        for d in range(table.shape[1]):
            away = table[data.edges.rows[k], d] - data.targets_NxD[k, d]
            grads[k - first, d] = away
            total += 0.5 * away * away
    return total, True


@njit(nogil=True, cache=True)
def move(table, row, grads, s, rate):
    for d in range(grads.shape[1]):
        x = table[row, d]
        grads[s, d] = max(x - rate * grads[s, d], 0.0) - x
