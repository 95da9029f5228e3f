"""Gradients of some rows each, in; their sum by rows out. Pure arithmetic."""

from collections.abc import Sequence

import numpy as np

Keys = np.ndarray | slice  # rows of a table, each once


def length(keys: Keys) -> int:
    """Return how many rows keys are."""
    return keys.stop - keys.start if isinstance(keys, slice) else len(keys)


def indices(keys: Keys) -> np.ndarray:
    """Return the numbers of the rows."""
    return np.arange(keys.start, keys.stop) if isinstance(keys, slice) else keys


def summed(pushes: Sequence[tuple[Keys, np.ndarray]]) -> tuple[Keys, np.ndarray]:
    """Add up gradients in this order, row by row; one alone is itself."""
    keys, grads = pushes[0]
    if len(pushes) == 1:
        return keys, grads
    if all(isinstance(each, slice) and each == keys for each, _ in pushes):
        total = grads.copy()
        for _, grads in pushes[1:]:
            total += grads
        return keys, total
    lists = [indices(each) for each, _ in pushes]
    mark = np.zeros(1 + max(int(each.max(initial=0)) for each in lists), bool)
    for each in lists:
        mark[each] = True
    rows = np.flatnonzero(mark).astype(np.int32)
    place = np.empty(len(mark), np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    total = np.zeros((len(rows), grads.shape[1]), np.float32)
    for each, (_, grads) in zip(lists, pushes, strict=True):
        total[place[each]] += grads
    return rows, total
