"""Transitions of n steps (Watkins 1989) from the steps of a rollout.

    step          t   t+1  t+2  t+3 (ends)  t+4 (resets)  t+5
    n = 3         └────────────┴───► s_t+3   reward r_t + γ r_t+1 + γ² r_t+2
    at the end             └───┴───► s_t+4   shorter: m = 2 steps
    at a reset                               no transition

No transition has steps of two episodes. The discount of the last observation is γ^m,
and 0 after a terminal state. After the limit of steps it is γ^m: the value of the last
observation is estimated.
"""

import numpy as np
from numba import njit

from dml.types import BadInput


def transitions(
    rollout: np.ndarray, steps: int, discount: float, dtype: np.dtype
) -> np.ndarray:
    """Return the transitions whose first step is not in the last n of a rollout.

    Args:
      rollout: Record of T + n steps of N copies.
      steps: n.
      discount: γ.
      dtype: Dtype of a transition.
    """
    length, _ = rollout["rewards"].shape
    if not 1 <= steps < length:
        raise BadInput(
            f"expected transitions of 1 to {length - 1} steps, got {steps}; pass "
            "longer rollouts or fewer steps"
        )
    ends = rollout["terminated"] | rollout["truncated"]
    rewards, discounts, last = sum_rewards(
        rollout["rewards"], rollout["terminated"], ends, steps, discount
    )
    step, copy = np.nonzero(~rollout["resets"][: length - steps])
    records = np.zeros(len(step), dtype)
    records["version"] = rollout["versions"][step]
    records["observations"][:, 0] = rollout["observations"][step, copy]
    records["observations"][:, 1] = rollout["observations"][last[step, copy], copy]
    records["reward"] = rewards[step, copy]
    records["discount"] = discounts[step, copy]
    records["action"] = rollout["actions"][step, copy]
    records["actor"] = rollout["actor"]
    return records


@njit(cache=True, nogil=True)
def sum_rewards(rewards, terminated, ends, steps, discount):
    """Return the reward, the discount and the last observation of each transition.

    Args:
      rewards: Of each step, (T+n)xN.
      terminated: Whether the step ended in a terminal state.
      ends: Whether the step ended an episode.
      steps: n.
      discount: γ.
    """
    shape = (len(rewards) - steps, rewards.shape[1])
    sums, discounts = np.empty(shape, np.float32), np.empty(shape, np.float32)
    last = np.empty(shape, np.int64)  # number of the last observation
    for t in range(shape[0]):
        for copy in range(shape[1]):
            total, factor = 0.0, 1.0
            end = t
            while True:
                total += factor * rewards[end, copy]
                factor *= discount
                if ends[end, copy] or end + 1 == t + steps:
                    break
                end += 1
            sums[t, copy], last[t, copy] = total, end + 1
            discounts[t, copy] = 0.0 if terminated[end, copy] else factor
    return sums, discounts, last
