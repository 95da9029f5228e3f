"""Predicted seconds of exact and coded sums, and the bandwidths where a code pays."""

from typing import NamedTuple

import numpy as np

from dml.wire.costs import allreduce, codes
from dml.wire.costs.allreduce import Rates
from studies.compression.speeds import Speed

# `native` is a bound, `shared` and `hierarchical` need hosts; the others are slower
EXACT = ("ring", "halving_doubling", "butterfly")
POINTS = 61  # bandwidths of the search
STEPS = 30  # halvings of an interval of bandwidths
FORWARD = 1 / 3  # share of a gradient's computation before the backward pass


class Network(NamedTuple):
    """A network, and the speed of the ranks' cores.

    Attributes:
      size: Number of ranks.
      alpha: Seconds of a message.
      gamma: Seconds to add a byte.
      gradient: Seconds of a gradient, whose backward pass exact sums overlap.
    """

    size: int
    alpha: float
    gamma: float
    gradient: float = 0.0


def exact_seconds(length: int, size: int, rates: Rates) -> float:
    """Return the seconds of the fastest all-reduce."""
    job = allreduce.Job(size, length)
    return min(allreduce.seconds(name, job, rates) for name in EXACT)


def coded_seconds(speed: Speed, size: int, rates: Rates) -> float:
    """Return the seconds of a sum of codes by its fastest transport."""
    if not speed.codec:
        sums = sum(exact_seconds(length, size, rates) for length in speed.lengths)
        return speed.encode + sums
    job = codes.Job(
        size,
        speed.length,
        speed.codec.nbytes,
        encode=speed.encode / speed.length,
        decode=speed.decode / speed.length,
    )
    usable = ("gather",) if speed.codec.sparse else ("gather", "scatter")
    return codes.seconds(codes.choose(job, rates, usable), job, rates)


def saved_seconds(speed: Speed, network: Network, gbps: float) -> float:
    """Return by how many seconds a code makes an update faster.

    Exact sums of buckets are sent during the backward pass, which is two thirds of the
    gradient's computation. A code is computed after it.
    """
    rates = Rates(network.alpha, 8e-9 / gbps, network.gamma)
    wire = exact_seconds(speed.length, network.size, rates)
    exact = max(wire, (1 - FORWARD) * network.gradient) + FORWARD * network.gradient
    coded = network.gradient + coded_seconds(speed, network.size, rates)
    return exact - coded


def pays_below(
    speed: Speed, network: Network, gbps: tuple[float, float]
) -> float | None:
    """Return the largest bandwidth in an interval at which a code saves time.

    None: it saves time nowhere.
    """
    grid = np.geomspace(*gbps, POINTS).tolist()
    saved = [saved_seconds(speed, network, each) for each in grid]
    paying = [n for n, seconds in enumerate(saved) if seconds > 0]
    if not paying:
        return None
    if paying[-1] == POINTS - 1:
        return grid[-1]
    low, high = grid[paying[-1]], grid[paying[-1] + 1]
    for _ in range(STEPS):
        middle = (low * high) ** 0.5
        if saved_seconds(speed, network, middle) > 0:
            low = middle
        else:
            high = middle
    return low
