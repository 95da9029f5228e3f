"""Gradients of some rows each, in; their sum by rows out. Pure arithmetic."""

from collections.abc import Sequence

import numpy as np

from dml.types import Rows

Keys = np.ndarray | slice  # rows of a table, each once


def length(keys: Keys) -> int:
    """Return how many rows keys are."""
    return keys.stop - keys.start if isinstance(keys, slice) else len(keys)


def indices(keys: Keys) -> np.ndarray:
    """Return the numbers of the rows."""
    return np.arange(keys.start, keys.stop) if isinstance(keys, slice) else keys


def summed(terms: Sequence[Rows]) -> Rows:
    """Add up gradients in this order, row by row; a single one is returned as it is."""
    keys, grads = terms[0]
    if len(terms) == 1:
        return terms[0]
    if all(isinstance(each, slice) and each == keys for each, _ in terms):
        total = grads.copy()
        for _, grads in terms[1:]:
            total += grads
        return Rows(keys, total)
    lists = [indices(each) for each, _ in terms]
    mark = np.zeros(1 + max(int(each.max(initial=0)) for each in lists), bool)
    for each in lists:
        mark[each] = True
    rows = np.flatnonzero(mark).astype(np.int32)
    place = np.empty(len(mark), np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    total = np.zeros((len(rows), grads.shape[1]), np.float32)
    for each, (_, grads) in zip(lists, terms, strict=True):
        total[place[each]] += grads
    return Rows(rows, total)
