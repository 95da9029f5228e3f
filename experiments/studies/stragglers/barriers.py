"""Four barriers, each as a program, as max-plus recurrences, and as a formula."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from dml.sim import maxplus
from dml.sim.delays import DelayDistribution, expected
from dml.wire.server import barriers as programs


class Barrier(NamedTuple):
    """A rule by which workers wait for each other.

    program: (comm, work, steps) -> start times of the steps on this rank.
    oracle: X_TxP, the delays of T steps and P workers -> start times of all steps, by
      max-plus recurrences.
    closed: delay distribution -> mean seconds per step by a formula; None without one.
    gradients: number of gradients that a step uses.
    """

    program: Callable[..., np.ndarray]
    oracle: Callable[[np.ndarray], np.ndarray]
    closed: Callable[[DelayDistribution], float | None]
    gradients: int


def barriers(p: int, k: int, staleness: int) -> dict[str, Barrier]:
    """Return the four barriers by name.

    p: number of workers.
    k: number of gradients that `k of p` waits for.
    staleness: steps by which a worker may be ahead of the slowest one in `bounded`.
    """
    return {
        "synchronous": Barrier(
            programs.synchronous, maxplus.ssp, lambda delay: expected(delay, p, p), p
        ),
        "k of p": Barrier(
            partial(programs.k_of_p, k=k),
            partial(maxplus.k_of_p, k=k),
            lambda delay: expected(delay, k, p),
            k,
        ),
        "bounded": Barrier(
            partial(programs.ssp, staleness=staleness),
            partial(maxplus.ssp, staleness=staleness),
            lambda delay: None,
            p,
        ),
        "asynchronous": Barrier(
            programs.asynchronous,
            partial(maxplus.ssp, staleness=math.inf),
            partial(unbounded, p=p),
            p,
        ),
    }


def unbounded(delay: DelayDistribution, p: int) -> float:
    """Return the mean seconds per step of p ranks that never wait."""
    speeds = [delay.speeds[rank % len(delay.speeds)] for rank in range(p)]
    return float(np.mean([delay.mean / speed for speed in speeds]))
