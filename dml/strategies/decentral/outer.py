"""The outer optimizer of DiLoCo and of asynchronous DiLoCo: Nesterov momentum.

    u ← μu + Δ         θ ← θ - η (Δ + μu)

Δ is a change by local updates. Momentum amplifies stale changes, so delayed Nesterov
(Liu 2024, Algorithm 3) adds it in every N-th step only:

    step t           1     2     3     4          5            N = 4
    θ ← θ - η times  Δ_1   Δ_2   Δ_3   Δ_4 + μu   Δ_5 …
    u                                  ← μu + Δ_1 + Δ_2 + Δ_3 + Δ_4
"""

from typing import NamedTuple

import numpy as np


class OuterState(NamedTuple):
    """The state of the outer optimizer; its arrays are changed in place.

    Attributes:
      momentum: u.
      changes: Sum of the changes since the last step with momentum.
      steps: Number of steps so far, in an array.
    """

    momentum: np.ndarray
    changes: np.ndarray
    steps: np.ndarray


def outer_state(params: np.ndarray) -> OuterState:
    """Return the state before the first step."""
    return OuterState(
        np.zeros_like(params), np.zeros_like(params), np.zeros(1, np.int64)
    )


def nesterov(
    params: np.ndarray,
    momentum: np.ndarray,
    change: np.ndarray,
    changes: np.ndarray,
    lr: float,
    decay: float,
) -> None:
    """Apply a step with momentum, in place.

    Args:
      params: θ.
      momentum: u.
      change: Δ of this step.
      changes: Sum of Δ since the last step with momentum.
      lr: Learning rate η.
      decay: μ.
    """
    factor, rate = map(change.dtype.type, (decay, lr))
    momentum[:] = factor * momentum + changes
    params -= rate * (change + factor * momentum)


def delayed_nesterov(
    params: np.ndarray,
    state: OuterState,
    change: np.ndarray,
    lr: float,
    decay: float,
    every: int,
) -> None:
    """Apply a step in place; the momentum is added in every N-th step.

    Args:
      params: θ.
      state: State of the optimizer.
      change: Δ of this step.
      lr: Learning rate η.
      decay: μ; 0: SGD.
      every: N; 1: Nesterov.
    """
    state.steps[0] += 1
    state.changes[:] += change
    if state.steps[0] % every:
        params -= change.dtype.type(lr) * change
        return
    nesterov(params, state.momentum, change, state.changes, lr, decay)
    state.changes[:] = 0
