"""Double Q-learning with a dueling network, on prioritised transitions of n steps.

    double  y = R + γ^m Q'(s_m, argmax_a Q(s_m, a))      van Hasselt 2016
    plain   y = R + γ^m max_a Q'(s_m, a)                 Mnih 2015
    loss    mean of w (y - Q(s, a))² / 2                 w: importance weights
    Q(s, a) = V(s) + A(s, a) - mean of A(s, ·)           Wang 2016

A transition has m steps from the state s, with the action a, the discounted sum R of
rewards and the last state s_m; y is the target of Q(s, a). Q' is the target network,
an earlier copy of Q. γ^m is replaced by 0 only after a terminal state: at the limit of
steps the value of the last observation counts. y is a constant of the gradient. On any
tabular process the fixed point of 1-step updates is the optimal Q.

Actors make transitions (`data.replay.n_step.transitions`), and replays sample them by
priority (`data.replay.buffer`).
"""

import math
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dml.environments.draws import uniform
from dml.models.gradient import gradient
from dml.models.initial import initial
from dml.models.policies.actor import evaluation
from dml.models.policies.network import dense, dense_shapes, hidden_name
from dml.types import (
    BadInput,
    Environment,
    Params,
    Play,
    Policy,
    Problem,
    Replayed,
    transition_dtype,
)


class Inputs(NamedTuple):
    """A batch of transitions as arrays; see `transition_dtype`."""

    observations_2xBxO: Any
    rewards: Any
    discounts: Any
    actions: Any
    weights: Any
    target: Params


def q_problem(
    environment: Environment,
    *,
    copies: int = 8,
    length: int = 16,
    widths: tuple[int, ...] = (64, 64),
    double: bool = True,
    reward_scale: float = 1.0,
    seed: int = 0,
    episodes: int = 20,
) -> Problem:
    """Return the problem of the action values of an environment.

    A batch is a `Replayed`. The logits of `play.act` are the action values, and its
    actions are greedy: the strategy replaces a share of them by random ones.

    Args:
      environment: Environment.
      copies: Number of environments of an actor.
      length: Number of steps in a message of an actor.
      widths: Numbers of units in the hidden layers.
      double: Whether Q, instead of Q', selects the action at the last observation.
      reward_scale: Factor of rewards, and so of action values; values of the order of
        1 need fewer updates than large values.
      seed: Seed of the params and of the episodes of `evaluate`.
      episodes: Number of greedy episodes of `evaluate`.
    """
    params = dueling_policy(environment.shape, environment.actions, widths).init(
        jax.random.key(seed)
    )
    play = Play(
        environment,
        copies,
        length,
        transition_dtype(environment),
        act,
        uniform,
        partial(errors, double, reward_scale),
    )
    return Problem(
        params,
        0,
        partial(q_gradient, double, reward_scale),
        evaluation(environment, act, seed, episodes),
        play=play,
    )


@cache
def dueling_policy(
    shape: tuple[int, ...], actions: int, widths: tuple[int, ...] = (64, 64)
) -> Policy:
    """Return a multilayer perceptron with action values, and their maximum as value.

    Args:
      shape: Shape of an observation.
      actions: Number of actions.
      widths: Numbers of units in the hidden layers; none: a linear function.
    """
    if min(math.prod(shape), actions, *widths, 1) < 1:
        raise BadInput(
            f"expected observations, actions and layers of at least one unit, got "
            f"{shape=}, {actions=} and {widths=}; pass positive sizes"
        )
    sizes, inputs = {}, math.prod(shape)
    for index, width in enumerate(widths):
        sizes[hidden_name(index)] = dense_shapes(inputs, width)
        inputs = width
    sizes["advantage"] = dense_shapes(inputs, actions)
    sizes["value"] = dense_shapes(inputs, 1)

    def init(key: Any) -> Params:
        return initial(sizes, key)

    def apply(params: Params, observations: Any) -> tuple[Any, Any]:
        values_BxA = action_values(params, observations)
        return values_BxA, values_BxA.max(1)

    return Policy(init, apply)


def action_values(params: Params, observations: Any) -> Any:
    """Return the values of all actions, BxA, as an array of the params' package."""
    features = observations.reshape(len(observations), -1)
    for index in range(len(params) - 2):
        features = dense(params[hidden_name(index)], features).clip(min=0)
    advantage_BxA = dense(params["advantage"], features)
    value_Bx1 = dense(params["value"], features)
    return value_Bx1 + advantage_BxA - advantage_BxA.mean(1, keepdims=True)


def act(
    params: Params, observations: np.ndarray, draws: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the greedy action of each observation, and the action values."""
    values_NxA = np.asarray(action_values(params, observations))
    return values_NxA.argmax(1), values_NxA


def differences(double: bool, params: Params, inputs: Inputs) -> Any:
    """Return y - Q(s, a) of each transition; only Q(s, a) is differentiated.

    Args:
      double: Whether Q, instead of Q', selects the action at the last observation.
      params: Params of Q.
      inputs: Batch of transitions.
    """
    first, last = inputs.observations_2xBxO
    rows = jnp.arange(len(first))
    values = action_values(params, first)[rows, inputs.actions]
    targets_BxA = action_values(inputs.target, last)
    if double:
        bootstrap = targets_BxA[rows, action_values(params, last).argmax(1)]
    else:
        bootstrap = targets_BxA.max(1)
    return inputs.rewards + inputs.discounts * bootstrap - values


def q_loss(double: bool, params: Params, inputs: Inputs) -> Any:
    """Return the weighted mean of squared differences, halved."""
    return jnp.mean(inputs.weights * differences(double, params, inputs) ** 2) / 2


LOSSES = {double: partial(q_loss, double) for double in (False, True)}


def q_gradient(
    double: bool, reward_scale: float, params: Params, batch: Replayed
) -> tuple[Any, Params]:
    """Return the loss of a batch and its gradient."""
    return gradient(LOSSES[double], params, as_inputs(reward_scale, batch))


def errors(
    double: bool, reward_scale: float, params: Params, batch: Replayed
) -> np.ndarray:
    """Return the priority |y - Q(s, a)| of each transition of a batch."""
    inputs = as_inputs(reward_scale, batch)
    return np.asarray(absolute_differences(double, params, inputs))


@partial(jax.jit, static_argnums=0)
def absolute_differences(double: bool, params: Params, inputs: Inputs) -> Any:
    return jnp.abs(differences(double, params, inputs))


def as_inputs(reward_scale: float, batch: Replayed) -> Inputs:
    """Return the fields of the records as contiguous arrays."""
    records = batch.records
    return Inputs(
        np.ascontiguousarray(np.swapaxes(records["observations"], 0, 1)),
        records["reward"] * np.float32(reward_scale),
        np.ascontiguousarray(records["discount"]),
        np.ascontiguousarray(records["action"]),
        batch.weights,
        batch.target,
    )
