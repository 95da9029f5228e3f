"""Shares of rows and columns by a hash, equal for every number of ranks.

A row takes part in a round if hash(seed, round, row) < share · 2^64, where `row` is its
number in the whole table; so a rank decides about its rows without a message. Of the
columns, the ⌈share · F⌉ with the smallest hashes take part.
"""

import numpy as np

ROWS, COLUMNS = 1, 2


def mixed(values: np.ndarray) -> np.ndarray:
    """Return splitmix64 of each value."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def hashes(seed: int, round_: int, kind: int, numbers: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash of each number."""
    key = mixed(np.array([seed], np.uint64)) + np.uint64(4 * round_ + kind)
    return mixed(numbers.astype(np.uint64) + mixed(key))


def rows(seed: int, round_: int, share: float, first: int, count: int) -> np.ndarray:
    """Return whether each of the rows first, first + 1, … takes part."""
    if share >= 1:
        return np.ones(count, bool)
    numbers = np.arange(first, first + count)
    return hashes(seed, round_, ROWS, numbers) < np.uint64(int(share * 2.0**64))


def columns(seed: int, round_: int, share: float, count: int) -> np.ndarray:
    """Return whether each column takes part."""
    if share >= 1:
        return np.ones(count, bool)
    order = np.argsort(hashes(seed, round_, COLUMNS, np.arange(count)), kind="stable")
    chosen = np.zeros(count, bool)
    chosen[order[: int(np.ceil(share * count))]] = True
    return chosen
