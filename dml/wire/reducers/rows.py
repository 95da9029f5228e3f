"""Sums of sparse gradients, row by row: pure arithmetic."""

from collections.abc import Sequence

import numpy as np

from dml.types import Rows

Keys = np.ndarray | slice  # distinct indices of rows of a table


def length(keys: Keys) -> int:
    """Return the number of rows."""
    return keys.stop - keys.start if isinstance(keys, slice) else len(keys)


def indices(keys: Keys) -> np.ndarray:
    """Return the indices of the rows as an array."""
    return np.arange(keys.start, keys.stop) if isinstance(keys, slice) else keys


def sum_rows(terms: Sequence[Rows]) -> Rows:
    """Return the sum of sparse gradients, added row by row in the order of `terms`.

    A single gradient is returned without a copy.
    """
    keys, grads = terms[0]
    if len(terms) == 1:
        return terms[0]
    # equal ranges of rows: a dense sum
    if all(isinstance(other, slice) and other == keys for other, _ in terms):
        total = grads.copy()
        for _, grads in terms[1:]:
            total += grads
        return Rows(keys, total)
    rows_of_terms = [indices(term_keys) for term_keys, _ in terms]
    last = max(int(term_rows.max(initial=0)) for term_rows in rows_of_terms)
    present = np.zeros(last + 1, bool)
    for term_rows in rows_of_terms:
        present[term_rows] = True
    rows = np.flatnonzero(present).astype(np.int32)
    position = np.empty(len(present), np.int32)
    position[rows] = np.arange(len(rows), dtype=np.int32)
    total = np.zeros((len(rows), grads.shape[1]), np.float32)
    for term_rows, (_, grads) in zip(rows_of_terms, terms, strict=True):
        total[position[term_rows]] += grads
    return Rows(rows, total)
