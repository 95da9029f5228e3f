"""Actor-critic learning from episodes, whose numbers are examples (A3C, Mnih 2016).

    minibatch of episode numbers ─► play with the current params ─► returns ─► gradient

A worker of a parameter server plays the episodes of its minibatch with the params that
it pulled. The policy lag of an update is the staleness of its gradient, which the
consistency of the servers bounds. The gradient needs no correction, as it uses the
params that played.

An episode is a function of its number and the params, so that `serial` and a server
with one worker have equal bits. The loss of an episode is the sum over its steps,
divided by the largest number of steps; a minibatch has the mean over its episodes.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from dml.environments import draws
from dml.models.policies.actor import EPISODES, evaluation
from dml.models.policies.actor_critic import Loss, checked, gradient
from dml.models.policies.network import act, mlp_policy, to_numpy
from dml.types import Environment, Params, Policy, Problem

SHORTEST, GROWTH = 64, 8  # lengths of padded episodes: each is compiled once
STEPS = "logits", "rewards", "actions", "terminated", "resets"


def episode_problem(
    environment: Environment,
    *,
    examples: int = 2**20,
    seed: int = 0,
    widths: Sequence[int] = (64, 64),
    episodes: int = EPISODES,
    **loss: Any,
) -> Problem:
    """Return the problem of an actor-critic whose examples are episodes.

    Args:
      environment: Environment of the episodes.
      examples: Number of different episodes.
      seed: Seed of the start value and of the episodes.
      widths: Numbers of units in the hidden layers.
      episodes: Number of episodes in an evaluation.
      **loss: Settings of the loss; see `actor_critic.Loss`.
    """
    policy = mlp_policy(environment.shape, environment.actions, tuple(widths))
    settings = checked(Loss(correction="none", **loss))
    return Problem(
        policy.init(jax.random.key(seed)),
        examples,
        partial(episodes_gradient, environment, policy, settings, seed),
        evaluation(environment, act, seed, episodes),
    )


def episodes_gradient(
    environment: Environment,
    policy: Policy,
    loss: Loss,
    seed: int,
    params: Params,
    numbers: np.ndarray,
) -> tuple[Any, Params]:
    """Return the loss of episodes played with the params, and its gradient."""
    steps = play(environment, params, seed, np.asarray(numbers))
    steps["scale"] = np.float32(len(numbers) * environment.limit)
    return gradient(policy.apply, loss, params, steps)


def play(
    environment: Environment, params: Params, seed: int, numbers: np.ndarray
) -> dict[str, Any]:
    """Return the steps of episodes as fields of a rollout, 1xTxN.

    The steps after the end of an episode are marked as resets, which the loss omits. T
    is the length of the longest episode, rounded up; see `padded`.

    Args:
      environment: Environment of the episodes.
      params: Parameters of the policy.
      seed: Seed of the run.
      numbers: Numbers of the episodes, N.
    """
    params, limit = to_numpy(params), environment.limit
    made = environment.make([seed * 2**32 + int(number) for number in numbers])
    observations = [made.reset().copy()]
    taken: list[tuple[np.ndarray, ...]] = []  # the fields STEPS of each step
    ended, length = np.zeros(len(numbers), np.bool_), 0
    while len(taken) < limit and not ended.all():
        if len(taken) == length:
            length = padded(length + 1, limit)
            # an episode's draws depend on its number alone
            each = [draws.uniform(seed, int(n), 0, length) for n in numbers]
            draws_TxN = np.stack(each, 1)
        actions, logits = act(params, observations[-1], draws_TxN[len(taken)])
        outcome = made.step(actions)
        rewards, terminated = outcome.rewards.copy(), outcome.terminated.copy()
        taken.append((logits, rewards, actions, terminated, ended))
        observations.append(outcome.observations.copy())
        ended = ended | outcome.terminated | outcome.truncated
    fields = dict(zip(STEPS, map(np.array, zip(*taken, strict=True)), strict=True))
    steps = {name: lengthened(field, length) for name, field in fields.items()}
    steps["resets"][0, len(taken) :] = True
    return steps | {"observations": lengthened(np.array(observations), length + 1)}


def lengthened(field_TxN: np.ndarray, length: int) -> np.ndarray:
    """Return the field of one rollout, 1xLxN, with zeros after its steps."""
    result = np.zeros((1, length, *field_TxN.shape[1:]), field_TxN.dtype)
    result[0, : len(field_TxN)] = field_TxN
    return result


def padded(length: int, limit: int) -> int:
    """Return the smallest of a few lengths that is at least `length`, or the limit."""
    least = SHORTEST
    while least < length:
        least *= GROWTH
    return min(least, limit)
