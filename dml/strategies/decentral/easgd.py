"""Elastic averaging SGD (Zhang 2015): replicas and a centre pull at each other.

    x_i ← x_i + s_i - α (x_i - x̃)
    x̃   ← x̃ + α Σ_i (x_i - x̃)        Σx_i + x̃ is not changed by the pull

Replicas explore around the centre, which is the result. β = pα is 0.9 by default. All
ranks have the centre, whose change is summed by an all-reduce of n words.
"""

import numpy as np

from dml.strategies.decentral.replicas import Protocol, strategy
from dml.types import AllReduce, Comm
from dml.types.ranges import PositiveFraction
from dml.wire.comm.buffers import TreeLayout

BETA = 0.9


@strategy
def easgd(
    size: int, *, allreduce: AllReduce, beta: PositiveFraction = BETA
) -> Protocol:
    """Train replicas that are tied to a common centre.

    Args:
      size: Number of ranks.
      allreduce: Sums the pulls.
      beta: β = pα, the pull of all replicas on the centre.
    """
    alpha = beta / size

    def init(start: np.ndarray, like: TreeLayout) -> np.ndarray:
        return start

    def mix(
        comm: Comm, before: np.ndarray, after: np.ndarray, t: int, centre: np.ndarray
    ) -> np.ndarray:
        # x and the centre of the round before, as in the paper's synchronous form
        pull = (before - centre) * before.dtype.type(alpha)
        after -= pull
        allreduce(comm, pull, op=np.add)
        return centre + pull

    return Protocol(init, mix, lambda vector, centre: centre)
