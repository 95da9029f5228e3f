"""Random numbers as a pure function of their place."""

import numpy as np
from numba import njit

from dml.environments import draws

MASK = 2**64 - 1


def splitmix(h):
    """The finalizer, in Python's integers."""
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & MASK
    h = (h ^ h >> 27) * 0x94D049BB133111EB & MASK
    return h ^ h >> 31


@njit
def numbers(stream, seed, episode, step, count):
    key = draws.key(stream, seed, episode, step)
    return np.array([draws.number(key, i) for i in range(count)])


def test_the_hash_is_splitmix64():
    """The first number of java.util.SplittableRandom(1234567), as published."""
    seed = 1234567 + 0x9E3779B97F4A7C15
    assert splitmix(seed) == 6457827717110365317

    h = 1
    for number in (5, 6, 7, 0):
        h = splitmix((h + number + 0x9E3779B97F4A7C15) & MASK)
    assert numbers(1, 5, 6, 7, 1)[0] == (h >> 11) * 2.0**-53


def test_uniform_numbers_depend_on_their_arguments_alone():
    first = draws.uniform(3, 1, 9, 100)
    assert first.dtype == np.float32
    assert first.tobytes() == draws.uniform(3, 1, 9, 100).tobytes()
    assert first[:7].tobytes() == draws.uniform(3, 1, 9, 7).tobytes()
    for other in ((4, 1, 9), (3, 2, 9), (3, 1, 10), (1, 3, 9), (3, 9, 1)):
        assert not np.intersect1d(first, draws.uniform(*other, 100)).size > 2


def test_numbers_are_uniform_and_not_correlated():
    """Kolmogorov-Smirnov over places that differ in a single argument."""
    from scipy.stats import kstest

    count = 4000
    rows = {
        "index": draws.uniform(0, 0, 0, count),
        "step": np.array([draws.uniform(0, 0, t, 1)[0] for t in range(count)]),
        "actor": np.array([draws.uniform(0, a, 0, 1)[0] for a in range(count)]),
        "seed": np.array([draws.uniform(s, 0, 0, 1)[0] for s in range(count)]),
        "episode": np.array([numbers(1, 0, e, 0, 1)[0] for e in range(count)]),
    }
    for row in rows.values():
        assert row.min() >= 0 and row.max() < 1
        assert kstest(row, "uniform").pvalue > 1e-3
        assert abs(np.corrcoef(row[:-1], row[1:])[0, 1]) < 0.06
    correlations = np.corrcoef(list(rows.values())) - np.eye(len(rows))
    assert abs(correlations).max() < 0.06


def test_the_largest_number_is_less_than_one():
    """In float32 a number of more than 24 bits would be rounded up to 1."""
    largest = np.float32(np.float64(2**24 - 1) * 2.0**-24)
    assert largest < 1
    assert draws.uniform(0, 0, 0, 200_000).max() < 1
