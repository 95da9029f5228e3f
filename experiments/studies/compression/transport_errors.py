"""Rows of quantization.py: errors of coded sums by transport and number of ranks."""

from typing import Any

import numpy as np

from dml import sim
from dml.runs.writers import Columns
from dml.types import Comm
from dml.wire.reducers.codecs import Codec
from dml.wire.reducers.codecs.hashing import seed_of
from dml.wire.reducers.transports import TRANSPORTS

Row = dict[str, Any]
LENGTH, MEAN = 1231, 0.2  # of the terms, which are normal numbers
HOST = 3  # ranks of a host, for two_level


def columns(ranks: list[int]) -> Columns:
    """Return the columns: one per number of ranks."""
    places = {
        f"p={size}": (9, lambda row, n=n: f"{row['errors'][n]:.2e}")
        for n, size in enumerate(ranks)
    }
    return {"code": (10, "{code}"), "transport": (10, "{transport}"), **places}


def rows(code: str, codec: Codec, ranks: list[int], seed: int) -> list[Row]:
    """Return the squared errors over the squared sums of each transport.

    Args:
      code: Name of the codec.
      codec: The codec.
      ranks: Numbers of ranks.
      seed: Seed of the terms and of the codes.
    """
    return [
        {
            "table": "transport",
            "code": code,
            "transport": name,
            "ranks": ranks,
            "errors": [error(name, codec, size, seed) for size in ranks],
        }
        for name in TRANSPORTS
    ]


def error(name: str, codec: Codec, size: int, seed: int) -> float:
    """Return the squared error of a sum over ranks, over the squared sum."""

    def program(comm: Comm) -> tuple[np.ndarray, np.ndarray]:
        draws = np.random.default_rng([seed, comm.rank])
        term = (draws.standard_normal(LENGTH) + MEAN).astype(np.float32)
        total = term.copy()
        TRANSPORTS[name](codec, comm, total, None, seed_of(seed, comm.rank))
        return term, total

    found = sim.run(program, size, sim.Uniform(host=HOST))
    exact = sum(term.astype(np.float64) for term, _ in found)
    return float(np.square(found[0][1] - exact).sum() / np.square(exact).sum())
