"""Elastic averaging SGD (Zhang 2015): replicas and a centre pull at each other.

    x_i ← x_i + s_i - α (x_i - x̃)
    x̃   ← x̃ + α Σ_i (x_i - x̃)        Σx_i + x̃ is not changed by the pull

Replicas explore around the centre, which is the result. β = pα is 0.9 by default. All
ranks have the centre, whose change is summed by an all-reduce of n words.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dml.strategies.decentral.replicas import Protocol, train_replicas
from dml.strategies.parameters import Update
from dml.types import AllReduce, BadInput, Comm, CountedComm, Problem, Step
from dml.wire.comm.buffers import Layout

BETA = 0.9


def easgd(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    allreduce: AllReduce,
    beta: float = BETA,
    **own: Any,
) -> Iterator[Step]:
    """Train replicas that are tied to a common centre.

    Args:
      problem: Problem to train.
      batches: Indices of each global minibatch.
      update: Optimizer, or rule of rows.
      comm: Ranks.
      allreduce: Sums the pulls.
      beta: β = pα, the pull of all replicas on the centre.
      **own: Options of `replicas.train_replicas`.
    """
    if not 0 < beta <= 1:
        raise BadInput(f"expected 0 < beta <= 1, got {beta}; pass beta=0.9")
    protocol = elastic(allreduce, beta / comm.size)
    return train_replicas(problem, batches, update, protocol, comm=comm, **own)


def elastic(allreduce: AllReduce, alpha: float) -> Protocol:
    """Return the protocol of elastic averaging."""

    def init(start: np.ndarray, like: Layout) -> np.ndarray:
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
