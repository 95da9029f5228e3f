"""Sums of sparse gradients, row by row: pure arithmetic."""

from collections.abc import Sequence

import numpy as np

from dml.types import Rows

Keys = np.ndarray | slice  # indices of rows of a table, each once


def length(keys: Keys) -> int:
    """Return the number of rows."""
    return keys.stop - keys.start if isinstance(keys, slice) else len(keys)


def indices(keys: Keys) -> np.ndarray:
    """Return the indices of the rows as an array."""
    return np.arange(keys.start, keys.stop) if isinstance(keys, slice) else keys


def sum_rows(terms: Sequence[Rows]) -> Rows:
    """Return the sum of sparse gradients, added in this order row by row.

    A single gradient is returned without a copy.
    """
    keys, grads = terms[0]
    if len(terms) == 1:
        return terms[0]
    if all(isinstance(other, slice) and other == keys for other, _ in terms):
        total = grads.copy()
        for _, grads in terms[1:]:
            total += grads
        return Rows(keys, total)
    lists = [indices(term_keys) for term_keys, _ in terms]
    present = np.zeros(1 + max(int(touched.max(initial=0)) for touched in lists), bool)
    for touched in lists:
        present[touched] = True
    rows = np.flatnonzero(present).astype(np.int32)
    position = np.empty(len(present), np.int32)
    position[rows] = np.arange(len(rows), dtype=np.int32)
    total = np.zeros((len(rows), grads.shape[1]), np.float32)
    for touched, (_, grads) in zip(lists, terms, strict=True):
        total[position[touched]] += grads
    return Rows(rows, total)
