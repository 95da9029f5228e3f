"""Rules, and vectors of honest workers and attackers, for tests of robust estimates."""

import numpy as np

from dml.wire.reducers.makers import RULES
from dml.wire.reducers.robust.estimate import Estimator, estimate_slice

BY_COLUMN = ("mean", "median", "trimmed_mean", "sign_majority")
SELECTING = ("krum", "multi_krum", "bulyan", "mda")
BY_LENGTH = ("geometric_median", "centred_clipping")
ROBUST = tuple(name for name in RULES if name != "mean")


def normal(count, length, *seed):
    """Return vectors of normal numbers; different for each seed."""
    draws = np.random.default_rng([count, length, *seed])
    return draws.standard_normal((count, length)).astype(np.float32)


def estimate_of_sum(rule, rows, *before, centre=None, step=0):
    """Return n times the estimate, as a reducer of n terms does."""
    return estimate_slice(
        Estimator(rule, before),
        rows,
        centre,
        step,
        lambda facts: facts,
        scale=len(rows),
    )


def attacked(count, faulty, length, seed):
    """Return n vectors, whose last f are those of one of several attacks."""
    draws = np.random.default_rng([count, faulty, length, seed])
    rows = draws.standard_normal((count, length)) * draws.choice([0.1, 1, 100])
    honest, mean = rows[: count - faulty], rows[: count - faulty].mean(axis=0)
    last = rows[count - faulty :]
    attack = seed % 7
    if attack == 0:
        last += draws.choice([1, 10, 1e3, 1e15])
    elif attack == 1:
        last[:] = mean + draws.uniform(0, 4) * honest.std(axis=0)
    elif attack == 2:
        last[:] = -draws.uniform(0, 10) * mean
    elif attack == 3:  # ties
        rows = draws.integers(0, 2, rows.shape)
    elif attack == 4:  # skewed
        rows **= 3
    elif attack == 5:  # two clusters
        rows *= 0.01
        rows[count - faulty :] += 1
    else:  # a copy of an honest vector
        last[:] = rows[0]
    return rows.astype(np.float32)
