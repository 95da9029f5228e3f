"""Regrets of deadlines relative to the best constant of each distribution."""

from collections.abc import Iterator, Sequence

import numpy as np

from dml.runs.writers import Row
from dml.sim.delays import delay_distribution
from dml.wire.plans.averaging import deadlines

DELAYS = (
    "constant:1",
    "shifted_exponential:0.01,1000",
    "shifted_exponential:100,0.01",
    "shifted_exponential:0,1",
    "pareto:10,1.1",
    "pareto:0.1,3",
    "lognormal:0.1,0.3",
    "lognormal:1000,2",
)
MEMBERS, QUORUM = 16, 8
CONSTANTS = np.geomspace(1e-3, 1e6, 91)  # seconds


def rows(groups: int, spreads: float, seed: int) -> Iterator[Row]:
    """Yield a row for each distribution of arrivals.

    Args:
      groups: Number of groups of each distribution.
      spreads: Median absolute deviations of the deadline from arrivals.
      seed: Random seed.
    """
    table = [row(text, groups, spreads, seed) for text in DELAYS]
    worst = np.max([row["curve"] for row in table], 0)
    best = int(np.argmin(worst))  # constant with the smallest worst regret
    for row_ in table:
        yield row_ | {
            "one_constant": float(CONSTANTS[best]),
            "one_regret": row_["curve"][best],
        }


def row(text: str, groups: int, spreads: float, seed: int) -> Row:
    """Return the regrets of one distribution."""
    generator = np.random.default_rng(seed)
    draws = delay_distribution(text).draws(generator, groups * MEMBERS)
    arrivals_GxM = draws.reshape(groups, MEMBERS)
    seconds, best = deadlines.best_fixed(arrivals_GxM, QUORUM)
    closing, members = deadlines.adaptive(arrivals_GxM, QUORUM, spreads)
    rates = [
        deadlines.rate(*deadlines.fixed(arrivals_GxM, QUORUM, constant))
        for constant in CONSTANTS
    ]
    return {
        "delays": text,
        "best_constant": seconds,
        "rate": best,
        "members": float(members.mean()),
        "regret": deadlines.regret(deadlines.rate(closing, members), best),
        "curve": [deadlines.regret(rate, best) for rate in rates],
    }


def worst(rows: Sequence[Row], key: str) -> float:
    """Return the largest regret of all distributions."""
    return max(float(row[key]) for row in rows)
