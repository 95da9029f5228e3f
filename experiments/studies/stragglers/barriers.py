"""Who waits for whom, in four ways: as a program, by max and plus, and by formula."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from dml.sim import maxplus
from dml.sim.delays import Law, expected
from dml.wire.server import barriers as clocks


class Way(NamedTuple):
    program: Callable[..., np.ndarray]  # comm, work, steps -> when each step began
    oracle: Callable[[np.ndarray], np.ndarray]  # X_TxP -> when each step begins
    closed: Callable[[Law], float | None]  # seconds a step, where a formula says them
    gradients: int  # that a step uses


def ways(p: int, k: int, staleness: int) -> dict[str, Way]:
    """Return the four ways for p workers."""
    return {
        "synchronous": Way(
            clocks.synchronous, maxplus.ssp, lambda law: expected(law, p, p), p
        ),
        "k of p": Way(
            partial(clocks.k_of_p, k=k),
            partial(maxplus.k_of_p, k=k),
            lambda law: expected(law, k, p),
            k,
        ),
        "bounded": Way(
            partial(clocks.ssp, staleness=staleness),
            partial(maxplus.ssp, staleness=staleness),
            lambda law: None,
            p,
        ),
        "asynchronous": Way(
            clocks.asynchronous,
            partial(maxplus.ssp, staleness=math.inf),
            partial(unbounded, p=p),
            p,
        ),
    }


def unbounded(law: Law, p: int) -> float:
    """Seconds in which p ranks that never wait make a step each, on the mean."""
    return float(
        np.mean([law.mean / law.speeds[r % len(law.speeds)] for r in range(p)])
    )
