"""Who waits for whom, in four ways: as a program, by max and plus, and by formula."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from dml.sim import maxplus
from dml.sim.delays import Law, expected
from dml.wire.server import barriers as clocks


class Barrier(NamedTuple):
    program: Callable[..., np.ndarray]  # comm, work, steps -> when each step began
    oracle: Callable[[np.ndarray], np.ndarray]  # X_TxP -> when each step begins
    closed: Callable[[Law], float | None]  # seconds a step, where a formula says them
    gradients: int  # that a step uses


def barriers(p: int, k: int, staleness: int) -> dict[str, Barrier]:
    """Return the four ways for p workers."""
    return {
        "synchronous": Barrier(
            clocks.synchronous, maxplus.ssp, lambda law: expected(law, p, p), p
        ),
        "k of p": Barrier(
            partial(clocks.k_of_p, k=k),
            partial(maxplus.k_of_p, k=k),
            lambda law: expected(law, k, p),
            k,
        ),
        "bounded": Barrier(
            partial(clocks.ssp, staleness=staleness),
            partial(maxplus.ssp, staleness=staleness),
            lambda law: None,
            p,
        ),
        "asynchronous": Barrier(
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
