"""A model for counting: every edge adds 1 to each of its rows."""

import sys
from typing import NamedTuple

import numpy as np
from numba import njit

from dml.models.sparse.problem import descend as move
from dml.models.sparse.problem import leave_table as settle
from dml.models.sparse.problem import problem
from dml.models.sparse.problem import same_data as with_rate
from dml.types import Edges

__all__ = ["gradient", "move", "objective", "with_rate", "settle"]
ROWS, TOUCHED = 12, 4


class Tally(NamedTuple):
    edges: Edges


@njit(nogil=True, cache=True)
def gradient(table, data, e, t, grads):
    for s in range(data.edges.starts[e + 1] - data.edges.starts[e]):
        grads[s] = -1
    return 0.0, True


def objective(table, data):
    return 0.0


def tally(edges):
    """Return a problem of few rows and many edges, with frequent conflicts."""
    rng = np.random.default_rng(1)
    rows = np.sort([rng.choice(ROWS, TOUCHED, replace=False) for _ in range(edges)])
    starts = np.arange(edges + 1) * TOUCHED
    data = Tally(Edges(starts.astype(np.int64), rows.ravel().astype(np.uint32)))
    return problem(sys.modules[__name__], data, np.zeros(ROWS, np.float32))
