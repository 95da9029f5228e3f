"""Features of dimensions.py: dense or sparse, made by columns, and their targets."""

from functools import cache

import numpy as np
from scipy import sparse

from dml.models.linear.problem import Columns, as_columns

CHUNK = 1024  # columns that are drawn together


def columns(examples: int, features: int, nonzeros: int, seed: int) -> Columns:
    """Return random features; of dense ones, each rank makes its own.

    nonzeros: Number of nonzero features of an example; 0: all.
    """
    if nonzeros:
        return as_columns(sparse_rows(examples, features, nonzeros, seed))

    def make(part: slice) -> np.ndarray:
        first, last = part.start // CHUNK, -(-part.stop // CHUNK)
        drawn = [
            np.random.default_rng([seed, chunk]).standard_normal(
                (examples, CHUNK), np.float32
            )
            for chunk in range(first, last)
        ]
        start = part.start - first * CHUNK
        return np.hstack(drawn)[:, start : start + part.stop - part.start]

    return Columns(examples, features, make)


def sparse_rows(
    examples: int, features: int, nonzeros: int, seed: int
) -> sparse.csr_matrix:
    """Return rows with equally many nonzero features at random places."""
    draws = np.random.default_rng(seed)
    indices = [draws.choice(features, nonzeros, replace=False) for _ in range(examples)]
    values = draws.standard_normal(examples * nonzeros, np.float32)
    starts = np.arange(examples + 1) * nonzeros
    return sparse.csr_matrix(
        (values, np.concatenate(indices), starts), (examples, features)
    )


def in_memory(made: Columns) -> Columns:
    """Return the columns from memory, which virtual ranks share."""
    whole = made.make(slice(0, made.features))
    if isinstance(whole, np.ndarray):
        return made._replace(make=lambda part: whole[:, part])

    @cache
    def rows_of(start: int, stop: int) -> sparse.csr_matrix:
        return sparse.csr_matrix(whole[:, start:stop])

    return made._replace(make=lambda part: rows_of(part.start, part.stop))


def signs(examples: int, seed: int) -> np.ndarray:
    """Return random classes -1 and 1, of which both occur."""
    drawn = np.random.default_rng(seed).choice([-1.0, 1.0], examples)
    drawn[:2] = -1, 1
    return drawn
