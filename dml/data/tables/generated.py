"""Seeded generators of tables, of the sizes and kinds of well-known sets."""

from typing import Any

import numpy as np


def friedman(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return 10 columns, of which 5 count, and numbers (Friedman 1991, problem 1)."""
    rng = np.random.default_rng([seed, 1])
    x = rng.random((rows, 10), np.float32)
    smooth = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
    y = smooth + 10 * x[:, 3] + 5 * x[:, 4] + rng.standard_normal(rows)
    return x, y.astype(np.float64)


def higgs(
    rows: int, seed: int, positives: float = 0.53
) -> tuple[np.ndarray, np.ndarray]:
    """Return 28 columns and 2 classes: 21 measured numbers, 7 functions of them.

    As in the HIGGS set (Baldi 2014) every column alone says little.

    Args:
      rows: Number of rows.
      seed: Seed.
      positives: Share of class 1.
    """
    rng = np.random.default_rng([seed, 2])
    low = rng.standard_normal((rows, 21)).astype(np.float32)
    low[:, ::4] = np.abs(low[:, ::4]) + 0.3  # momenta
    pairs = [low[:, i] * low[:, i + 1] for i in range(3)]
    sums = [np.sqrt(low[:, i] ** 2 + low[:, i + 4] ** 2) for i in range(4)]
    x = np.column_stack([low, *pairs, *sums]).astype(np.float32)
    mass = pairs[0] * low[:, 4] + np.sin(2 * low[:, 5]) + low[:, 8] * low[:, 9]
    signal = mass - sums[1] * low[:, 2] + 0.5 * low[:, 12] * (low[:, 13] > 0)
    noisy = signal + 1.5 * rng.standard_normal(rows)
    return x, (noisy > np.quantile(noisy, 1 - positives)).astype(np.float64)


def covertype(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return 10 numbers, 4 and 40 indicators, and 7 classes of unequal size."""
    rng = np.random.default_rng([seed, 3])
    area, soil = rng.integers(0, 4, rows), np.minimum(rng.geometric(0.1, rows) - 1, 39)
    height = 2700 + 90 * area + 8 * soil + 250 * rng.standard_normal(rows)
    others = rng.standard_normal((rows, 9)) * [40, 8, 150, 60, 900, 25, 20, 35, 700]
    x = np.zeros((rows, 54), np.float32)
    x[:, 0], x[:, 1:10] = np.round(height), np.round(others)
    x[np.arange(rows), 10 + area] = 1
    x[np.arange(rows), 14 + soil] = 1
    effects = np.random.default_rng(4).standard_normal((40, 7))
    scores = 0.8 * effects[soil]
    scores += np.outer((height - 2950) / 300, np.linspace(-2, 2, 7))
    scores += np.abs(others[:, 4:5] / 900) * np.sin(np.arange(7))
    scores += [1.5, 2, 0.3, -2, -1, 0, 0] + rng.gumbel(size=(rows, 7))
    return x, scores.argmax(axis=1).astype(np.float64)


def zipf(rows: int, columns: int, nonzeros: int, seed: int) -> tuple[Any, np.ndarray]:
    """Return a CSR matrix of counts, as of words in texts, and 2 classes.

    A count of a row is in column c with a probability of about 1/(c + 1), by Zipf's
    law; it is geometric. The class depends on the first columns.

    Args:
      rows: Number of rows.
      columns: Number of columns.
      nonzeros: Number of draws of a row; equal ones are added.
      seed: Seed.
    """
    from scipy import sparse

    rng = np.random.default_rng([seed, 4])
    # in float32 the bits of a power, and so columns, depend on the processor
    drawn = (columns + 1.0) ** rng.random(rows * nonzeros, np.float32).astype(float)
    places = np.minimum(drawn.astype(np.int32) - 1, columns - 1)
    starts = np.arange(rows + 1) * nonzeros
    counts = rng.geometric(0.5, len(places)).astype(np.float32)
    x = sparse.csr_array((counts, places, starts), (rows, columns))
    x.sum_duplicates()
    effects = rng.standard_normal(min(columns, 512))
    scores = x[:, : len(effects)] @ effects
    noisy = scores + 0.5 * scores.std() * rng.standard_normal(rows)
    return x, (noisy > np.median(noisy)).astype(np.float64)
