"""V-trace: targets of values from steps of an earlier policy (Espeholt 2018).

    δ_t = ρ_t (r_t + γ_t V_{t+1} - V_t)
    v_t = V_t + δ_t + γ_t c_t (v_{t+1} - V_{t+1}),      v_T = V_T

V_t is the value of observation t, r_t the reward and γ_t the discount of step t. ρ_t
and c_t are the ratio of the probabilities of the action under the learner's policy π
and the actor's policy μ, truncated at ρ̄ and c̄. The fixed point is the value of the
policy proportional to min(ρ̄ μ, π), for every c̄.

γ_t is 0 if step t ended in a terminal state. If step t ended an episode by its limit,
V_{t+1} is the value of the last observation, and step t+1, which only resets the
environment, has ρ = c = 0 and so v_{t+1} = V_{t+1}.
"""

from typing import Any

import jax
import jax.numpy as jnp


def vtrace(
    rewards: Any, discounts: Any, values: Any, rho: Any, c: Any
) -> tuple[Any, Any]:
    """Return the targets v_t, and the advantages r_t + γ_t v_{t+1} - V_t.

    Args:
      rewards: r_t, Tx...
      discounts: γ_t, Tx...
      values: V_t of the T+1 observations, of which the last one is the bootstrap.
      rho: ρ_t, Tx...
      c: c_t, Tx...
    """

    def backward(target: Any, step: Any) -> tuple[Any, Any]:
        reward, discount, value, next_value, rho, c = step
        # v_t in another order of terms: for ρ = c = 1 the result is r + γ v_{t+1},
        # and for ρ = c = 0 it is V_t, to the last bit
        target = (
            (1 - rho) * value
            + rho * reward
            + discount * ((rho - c) * next_value + c * target)
        )
        return target, target

    steps = rewards, discounts, values[:-1], values[1:], rho, c
    _, targets = jax.lax.scan(backward, values[-1], steps, reverse=True)
    next_targets = jnp.concatenate([targets[1:], values[-1:]])
    return targets, rewards + discounts * next_targets - values[:-1]
