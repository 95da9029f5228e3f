"""Exact contraction of the variance by rounds of averaging, in expectation.

For a random matrix W of a round with rows and columns that sum to 1, and values in
random order, the variance of N values falls by the factor (E|W|² - 1)/(N - 1), where
|W|² is the sum of squares of all weights. In groups with equal weights |W|² is the
number of groups. Pure arithmetic.
"""

import itertools
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dml.wire.plans.averaging.mixing import Topology


def equal_groups(ranks: int, groups: int, participation: float = 1.0) -> float:
    """Return the factor of one round in groups of fixed sizes.

    Args:
      ranks: Number of ranks, N.
      groups: Number of groups, none of which becomes empty.
      participation: Expected fraction of ranks that take part.
    """
    return (groups + ranks * (1 - participation) - 1) / (ranks - 1)


def independent_groups(ranks: int, groups: int, participation: float = 1.0) -> float:
    """Return the factor of one round in groups that each rank chooses by itself.

    A group is empty with probability (1 - q/g)^N, so that |W|² has the expectation
    g(1 - (1 - q/g)^N) + N(1 - q).

    Args:
      ranks: Number of ranks, N.
      groups: Number of groups to choose from, g.
      participation: Probability that a rank takes part, q.
    """
    nonempty = groups * (1 - (1 - participation / groups) ** ranks)
    return (nonempty + ranks * (1 - participation) - 1) / (ranks - 1)


def published_groups(ranks: int, groups: int) -> float:
    """Return the factor of Ryabinin 2021 for random groups: (g - 1)/N + g/N².

    It is close to that of equal groups, and an upper bound if groups may be empty.
    """
    return (groups - 1) / ranks + groups / ranks**2


def grid_variances(
    sides: Sequence[int], rounds: int, participation: float = 1.0
) -> np.ndarray:
    """Return the variance after 0, 1, … rounds on a full grid, over the first variance.

    With q = 1 it is (M_(t+1) … M_d - 1)/(N - 1), and 0 from round d on. Ranks take part
    with probability q, independently in each round; a rank that does not keeps its
    value. With f = 1 - q, the own weight has the expectation o = f + (1 - f^M)/M in a
    line of M ranks. The recursion is over the mean products of the values of two ranks
    by the set of axes along which their seats differ; the empty set is the variance.

    Args:
      sides: Sides of the grid, by axis; round t averages along axis t mod d.
      rounds: Number of rounds.
      participation: Probability that a rank takes part in a round, q.
    """
    dims, absent = len(sides), 1 - participation
    products = np.full((2,) * dims, -1 / (np.prod(sides, dtype=float) - 1))
    products[(0,) * dims] = 1.0
    variances = [1.0]
    for t in range(rounds):
        axis = t % dims
        side = sides[axis]
        if side > 1:
            own = absent + (1 - absent**side) / side
            # of two lines: the weights of a pair of ranks at equal places, all summed
            equal = np.full((2,) * (dims - 1), own**2 + (1 - own) ** 2 / (side - 1))
            equal[(0,) * (dims - 1)] = own  # of one line: weights are not independent
            same, other = np.moveaxis(products, axis, 0)
            moved = (1 - equal) * (other - same)
            products = np.stack([same + moved, other - moved / (side - 1)], axis)
        variances.append(float(products[(0,) * dims]))
    return np.maximum(variances, 0.0)


def spectrum_variances(topology: Topology, rounds: int) -> np.ndarray:
    """Return the expected variance after 0, 1, … rounds, over the first variance.

    Values in random order have equal parts along all eigenvectors but that of the mean.

    Args:
      topology: A topology with a spectrum.
      rounds: Number of rounds.
    """
    assert topology.spectrum is not None
    power = np.ones(topology.size - 1)
    variances = [1.0]
    for t in range(rounds):
        power *= np.abs(topology.spectrum(t)[1:]) ** 2
        variances.append(float(power.mean()) if len(power) else 0.0)
    return np.array(variances)


@lru_cache(maxsize=32)
def rounds_to(topology: Topology, variance: float) -> int:
    """Return the rounds until the expected variance is below a fraction of the first.

    Args:
      topology: A topology with a spectrum and equal rounds, and more than one rank.
      variance: The fraction.
    """
    assert topology.spectrum is not None and topology.period == 1
    logs = 2 * np.log(np.maximum(np.abs(topology.spectrum(0)[1:]), 1e-300))
    logs = logs[logs > logs.max() * 1e4] if logs.max() < 0 else logs

    def reached(rounds: int) -> bool:
        return float(np.exp(rounds * logs).sum()) < variance * (topology.size - 1)

    high = next(1 << k for k in itertools.count() if reached(1 << k))
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
