"""Actor-critic learning from rollouts, with a correction of the policy lag (IMPALA).

    actors ─► rollouts, BxTxN steps ─► V-trace ─► gradient

A batch is an array of B rollouts. The loss is the sum over the steps that are not
resets, divided by B·T·N, so the mean of the gradients of equal parts of a batch is the
gradient of the batch.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from dml.environments import draws
from dml.models.policies.actor import EPISODES, evaluation
from dml.models.policies.actor_critic import Loss, checked, gradient
from dml.models.policies.network import act, mlp_policy
from dml.types import BadInput, Environment, Play, Policy, Problem, rollout_dtype

FIELDS = "observations", "logits", "rewards", "actions", "terminated", "resets"


def rollout_problem(
    environment: Environment,
    *,
    copies: int = 8,
    length: int = 32,
    seed: int = 0,
    widths: Sequence[int] = (64, 64),
    episodes: int = EPISODES,
    **loss: Any,
) -> Problem:
    """Return the problem of an actor-critic that learns from rollouts.

    Its `gradient` takes arrays of rollouts, which actors play by `play`.

    Args:
      environment: Environment of the episodes.
      copies: Number of environments of an actor.
      length: Number of steps of a rollout.
      seed: Seed of the start value and of the evaluation's episodes.
      widths: Numbers of units in the hidden layers.
      episodes: Number of episodes in an evaluation.
      **loss: Settings of the loss; see `actor_critic.Loss`.
    """
    if min(copies, length, episodes) < 1:
        raise BadInput(
            f"expected at least one copy, step and episode, got {copies=}, {length=} "
            f"and {episodes=}; pass positive numbers"
        )
    words = math.prod(environment.shape) + environment.actions + 3  # of a frame
    if 4 * words * copies * (length + 1) >= 2**31:
        raise BadInput(
            f"expected rollouts below 2 GiB, got {copies=} and {length=} of {words} "
            "words per frame; pass smaller numbers"
        )
    policy = mlp_policy(environment.shape, environment.actions, tuple(widths))
    settings = checked(Loss(**loss))
    return Problem(
        policy.init(jax.random.key(seed)),
        0,  # examples: actors make them
        partial(rollouts_gradient, policy, settings),
        evaluation(environment, act, seed, episodes),
        play=Play(
            environment,
            copies,
            length,
            rollout_dtype(environment, copies, length),
            act,
            draws.uniform,
        ),
    )


def rollouts_gradient(
    policy: Policy, loss: Loss, params: Any, rollouts: np.ndarray
) -> tuple[Any, Any]:
    """Return the loss of an array of rollouts, and its gradient."""
    steps: dict[str, Any] = {name: rollouts[name] for name in FIELDS}
    steps["scale"] = np.float32(rollouts["rewards"].size)
    return gradient(policy.apply, loss, params, steps)
