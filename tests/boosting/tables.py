"""Tables for tests of boosting, and trainings on virtual ranks."""

import numpy as np

from dml import sim
from dml.boosting import Data, Settings, share, train
from dml.wire.comm import Metered

ROWS, COLUMNS = 400, 7
CATEGORY = 3  # a column of categories 0 to 7
SPLITS = [
    *((p, "rows") for p in (1, 2, 3, 5, 6, 7, 8, 9, 16)),
    *((p, "columns") for p in (2, 3, 4, 5, 7, 9, 16)),
    *((4, "2x2"), (6, "3x2"), (6, "2x3"), (8, "2x4"), (9, "3x3"), (16, "4x4")),
]


def table(loss="squared", rows=ROWS, seed=0, dtype=np.float32):
    """Return features with ties and missing values, and targets."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, COLUMNS)).astype(dtype)
    x[:, 5] = np.round(2 * x[:, 5])
    x[rng.random(x.shape) < 0.1] = np.nan
    x[:, CATEGORY] = rng.integers(0, 8, rows)
    x[:, 6] = 1.0  # constant
    clean = np.nan_to_num(x)
    f = clean[:, 0] + clean[:, 1] * clean[:, 2] + np.isin(x[:, CATEGORY], (2, 5))
    if loss == "logistic":
        return x, (f > 0.3).astype(float)
    if loss == "softmax":
        return x, np.digitize(f, [-0.5, 1.0]).astype(float)
    return x, f + 0.1 * rng.standard_normal(rows)


def settings(loss="squared", **changes):
    few = dict(rounds=2, bins=16, leaves=6, min_rows=3, rate=0.3)
    classes = 3 if loss == "softmax" else 1
    return Settings(**dict(loss=loss, classes=classes) | few | changes)


def blocks(rank, size, split, x, y, weights=None):
    """Return the block of a rank."""
    rows, columns = share(rank, size, split, *x.shape)
    own = None if weights is None else weights[rows]
    return Data(x[rows, columns], y[rows], own)


def trained(size, given, x, y, weights=None, evaluate=()):
    """Return what train returns on each virtual rank, and the words it sent."""

    def program(comm):
        comm = Metered(comm)
        own = blocks(comm.rank, size, given.split, x, y, weights)
        others = [blocks(comm.rank, size, given.split, *each) for each in evaluate]
        made = train(comm, own, given, others)
        return made, comm.bytes_sent / 8

    return sim.run(program, size)
