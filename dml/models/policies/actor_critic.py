"""The loss of an actor-critic on steps of an earlier policy.

    rollouts ─► logits, values ─► V-trace ─► targets, advantages
    loss = - Σ ρ A log π(a) + value_weight · ½ Σ (v - V)² - entropy_weight · Σ H(π)

ρ are importance weights, A advantages, π the policy, a actions, v targets, V values and
H the entropy. The sums are over all steps except those that only reset an environment.
Targets and advantages are constants of the gradient.

Four corrections of the policy lag, as IMPALA compares them (Espeholt 2018, section
5.2.2): `vtrace` has the importance weights ρ and c in the targets, and ρ in the policy
gradient; `one_step` has ρ in the policy gradient alone, and n-step returns as targets;
`epsilon` has no weights, but adds 1e-6 to the probability whose logarithm is taken;
`none` has no correction.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dml.models.policies.vtrace import vtrace
from dml.types import BadInput, Params


class Correction(NamedTuple):
    """A correction of the policy lag.

    Attributes:
      targets: Whether the targets of values have importance weights.
      gradient: Whether the policy gradient has importance weights.
      epsilon: Added to the probability of an action before its logarithm is taken.
    """

    targets: bool = False
    gradient: bool = False
    epsilon: float = 0.0


CORRECTIONS: Mapping[str, Correction] = {
    "vtrace": Correction(targets=True, gradient=True),
    "one_step": Correction(gradient=True),
    "epsilon": Correction(epsilon=1e-6),
    "none": Correction(),
}


class Loss(NamedTuple):
    """Settings of the loss.

    Attributes:
      correction: Name in CORRECTIONS.
      discount: Factor γ of the next step's value.
      rho: Truncation ρ̄ of importance weights, which determines the fixed point.
      c: Truncation c̄ of the weights of traces, at most ρ̄.
      trace: Factor λ of the traces; 1: returns to the end of the rollout.
      value_weight: Weight of the values' squared error.
      entropy_weight: Weight of the policy's entropy.
      reward_scale: Factor of the rewards, so that values are of the order of 1.
    """

    correction: str = "vtrace"
    discount: float = 0.99
    rho: float = 1.0
    c: float = 1.0
    trace: float = 1.0
    value_weight: float = 0.5
    entropy_weight: float = 0.01
    reward_scale: float = 1.0


def checked(loss: Loss) -> Loss:
    """Return the settings; raise BadInput if they are out of range."""
    if loss.correction not in CORRECTIONS:
        raise BadInput(
            f"expected a correction of {', '.join(CORRECTIONS)}, got "
            f"{loss.correction!r}; pass one of these names"
        )
    if not 0 <= loss.c <= loss.rho:
        raise BadInput(
            f"expected truncations 0 <= c <= rho, got c={loss.c} and rho={loss.rho}; "
            "pass c from 0 to rho"
        )
    for name in ("discount", "trace"):
        if not 0 <= getattr(loss, name) <= 1:
            raise BadInput(
                f"expected {name} in [0, 1], got {getattr(loss, name)}; pass "
                f"a number in this range"
            )
    return loss


@partial(jax.jit, static_argnums=(0, 1))
def gradient(
    apply: Callable[[Params, Any], tuple[Any, Any]],
    loss: Loss,
    params: Params,
    steps: Mapping[str, Any],
) -> tuple[Any, Params]:
    """Return the loss and its gradient.

    Args:
      apply: Network; see `Policy.apply`.
      loss: Settings of the loss.
      params: Parameters of the learner.
      steps: Fields of rollouts as in `rollout_dtype`, each BxTx..., and `scale`, by
        which the sum over the steps is divided.
    """
    return jax.value_and_grad(actor_critic)(params, steps, apply, loss)


def actor_critic(
    params: Params,
    steps: Mapping[str, Any],
    apply: Callable[[Params, Any], tuple[Any, Any]],
    loss: Loss,
) -> Any:
    """Return the loss of steps; see `gradient`."""
    # time first; the copies of all rollouts are one axis
    time = {
        name: jnp.moveaxis(jnp.asarray(field), 1, 0)
        for name, field in steps.items()
        if name != "scale"
    }
    observations = time["observations"]
    length, rollouts, copies = observations.shape[:3]
    flat = observations.reshape(length * rollouts * copies, *observations.shape[3:])
    logits, values = apply(params, flat)
    logits = logits.reshape(length, rollouts, copies, -1)[:-1]
    values = values.reshape(length, rollouts, copies)

    log_pi = jax.nn.log_softmax(logits)
    log_actions = chosen(log_pi, time["actions"])
    log_mu = chosen(jax.nn.log_softmax(time["logits"]), time["actions"])
    ratios = jnp.exp(jax.lax.stop_gradient(log_actions) - log_mu)
    played = 1.0 - time["resets"]
    correction = CORRECTIONS[loss.correction]
    weights = played * jnp.minimum(loss.rho, ratios)
    traces = played * loss.trace * jnp.minimum(loss.c, ratios)
    targets, advantages = vtrace(
        loss.reward_scale * time["rewards"],
        loss.discount * (1.0 - time["terminated"]),
        jax.lax.stop_gradient(values),
        weights if correction.targets else played,
        traces if correction.targets else played * loss.trace,
    )
    if correction.epsilon:
        log_actions = jnp.log(jnp.exp(log_actions) + correction.epsilon)
    entropies = -jnp.sum(jnp.exp(log_pi) * log_pi, -1)
    policy_weights = weights if correction.gradient else played
    sums = (
        -jnp.sum(policy_weights * advantages * log_actions)
        + loss.value_weight * 0.5 * jnp.sum(played * (targets - values[:-1]) ** 2)
        - loss.entropy_weight * jnp.sum(played * entropies)
    )
    return sums / steps["scale"]


def chosen(log_probabilities: Any, actions: Any) -> Any:
    """Return the logarithm of the probability of each action."""
    return jnp.take_along_axis(log_probabilities, actions[..., None], -1)[..., 0]
