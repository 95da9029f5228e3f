"""Gradients of rollouts, by loops over scalars."""

import math
from functools import cache

import jax
import numpy as np
import pytest

from dml.environments.cartpole import CARTPOLE
from dml.models.policies.actor import Actor
from dml.models.policies.actor_critic import CORRECTIONS
from dml.models.policies.network import mlp_policy
from dml.models.policies.rollouts import rollout_problem
from dml.types import BadInput

COPIES, LENGTH, B = 3, 8, 4
SETTINGS = {"rho": 1.2, "c": 0.9, "discount": 0.8, "trace": 0.95, "reward_scale": 0.5}
WEIGHTS = {"value_weight": 0.7, "entropy_weight": 0.03}


@cache
def problem(correction="vtrace"):
    return rollout_problem(
        CARTPOLE,
        copies=COPIES,
        length=LENGTH,
        widths=(),
        correction=correction,
        episodes=3,
        **SETTINGS,
        **WEIGHTS,
    )


def params(scale=1.0):
    rng = np.random.default_rng(5)
    return jax.tree.map(
        lambda leaf: (scale * rng.normal(size=leaf.shape)).astype("f"),
        problem().params,
    )


def random_rollouts(seed=0):
    """Return rollouts of an arbitrary policy with ends of both kinds and resets."""
    rng = np.random.default_rng(seed)
    rollouts = np.zeros(B, problem().play.dtype)
    for name in ("observations", "logits", "rewards"):
        rollouts[name] = rng.normal(size=rollouts[name].shape)
    rollouts["actions"] = rng.integers(0, 2, rollouts["actions"].shape)
    kind = rng.integers(0, 4, rollouts["actions"].shape)
    rollouts["terminated"], rollouts["truncated"] = kind == 1, kind == 2
    ended = rollouts["terminated"] | rollouts["truncated"]
    rollouts["resets"][:, 1:] = ended[:, :-1]
    for name in ("terminated", "truncated", "rewards"):
        rollouts[name][rollouts["resets"]] = 0
    ended = rollouts["terminated"] | rollouts["truncated"]
    rollouts["resets"][:, 1:] &= ended[:, :-1]
    assert rollouts["resets"].any() and rollouts["terminated"][:, :-1].any()
    return rollouts


def reference_loss(params, rollouts, correction):
    """Return the loss by its definition, step by step in Python."""
    total = 0.0
    for rollout in rollouts:
        for n in range(COPIES):
            total += reference_copy(params, rollout, n, correction)
    return total / (len(rollouts) * LENGTH * COPIES)


def reference_copy(params, rollout, n, correction):
    gamma, scale = SETTINGS["discount"], SETTINGS["reward_scale"]
    logits, values = mlp_policy((4,), 2, ()).apply(
        params, rollout["observations"][:, n]
    )
    logits, values = np.asarray(logits, float), np.asarray(values, float)
    target, total = values[LENGTH], 0.0
    for t in reversed(range(LENGTH)):
        if rollout["resets"][t, n]:
            target = values[t]  # of the last observation of the episode before
            continue
        pi = np.exp(logits[t]) / np.exp(logits[t]).sum()
        mu = np.exp(rollout["logits"][t, n].astype(float))
        action = rollout["actions"][t, n]
        ratio = pi[action] / (mu[action] / mu.sum())
        rho = min(SETTINGS["rho"], ratio)
        c = SETTINGS["trace"] * min(SETTINGS["c"], ratio)
        later = 0.0 if rollout["terminated"][t, n] else gamma
        reward = scale * rollout["rewards"][t, n]
        advantage = reward + later * target - values[t]
        weight = rho if correction in ("vtrace", "one_step") else 1.0
        if correction != "vtrace":
            rho, c = 1.0, SETTINGS["trace"]
        error = reward + later * values[t + 1] - values[t]
        target = values[t] + rho * error + later * c * (target - values[t + 1])
        probability = pi[action] + (1e-6 if correction == "epsilon" else 0.0)
        total -= weight * advantage * math.log(probability)
        total += WEIGHTS["value_weight"] * 0.5 * (target - values[t]) ** 2
        total += WEIGHTS["entropy_weight"] * (pi * np.log(pi)).sum()
    return total


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_the_loss_is_that_of_a_loop_over_scalars(correction):
    for scale in (0.3, 3.0):  # of the params: with 3 actions are almost certain
        loss, _ = problem(correction).gradient(params(scale), random_rollouts())
        expected = reference_loss(params(scale), random_rollouts(), correction)
        assert float(loss) == pytest.approx(expected, rel=1e-4)


def test_the_gradient_does_not_flow_through_targets_and_weights():
    rollouts = random_rollouts()
    # one step of each copy, which ends in a terminal state
    rollouts["resets"] = True
    rollouts["resets"][:, -1] = False
    rollouts["terminated"][:, -1] = True
    _, grads = problem().gradient(params(), rollouts)
    observations = rollouts["observations"][:, LENGTH - 1].reshape(-1, 4)
    logits, values = mlp_policy((4,), 2, ()).apply(params(), observations)
    mu = jax.nn.softmax(rollouts["logits"][:, -1].reshape(-1, 2))
    rows, actions = np.arange(B * COPIES), rollouts["actions"][:, -1].reshape(-1)
    pi = np.asarray(jax.nn.softmax(logits))
    ratios = (pi / mu)[rows, actions]
    rewards = SETTINGS["reward_scale"] * rollouts["rewards"][:, -1].reshape(-1)
    errors = np.minimum(SETTINGS["rho"], ratios) * (rewards - values)
    slope = -WEIGHTS["value_weight"] * errors.mean() / LENGTH
    np.testing.assert_allclose(grads["value"]["bias"][0], slope, rtol=1e-4)
    scores = np.eye(2)[actions] - pi  # gradients of log π by the logits
    entropies = -(pi * np.log(pi)).sum(1, keepdims=True)
    slopes = -errors[:, None] * scores
    slopes += WEIGHTS["entropy_weight"] * pi * (np.log(pi) + entropies)
    expected = slopes.mean(0) / LENGTH
    np.testing.assert_allclose(grads["logits"]["bias"], expected, rtol=1e-4)


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_the_last_step_of_a_fragment_changes_every_gradient(correction):
    rollouts = random_rollouts()
    rollouts["resets"] = False
    rollouts["terminated"] = rollouts["truncated"] = False
    _, before = problem(correction).gradient(params(), rollouts)
    rollouts["rewards"][:, -1] += 1
    _, after = problem(correction).gradient(params(), rollouts)
    for old, new in zip(*map(jax.tree.leaves, (before, after)), strict=True):
        assert (np.asarray(old) != np.asarray(new)).all()


def test_the_mean_of_the_gradients_of_parts_is_the_gradient_of_the_batch():
    a, b = random_rollouts()[[0, 1]]
    batch, first, second = (
        problem().gradient(params(), np.array(part))
        for part in ([a, a, b, b], [a] * 4, [b] * 4)  # of one compiled shape
    )
    trees = map(jax.tree.leaves, (batch, first, second))
    for leaf, left, right in zip(*trees, strict=True):
        mean = (np.asarray(left) + np.asarray(right)) / 2
        np.testing.assert_allclose(leaf, mean, rtol=1e-3, atol=1e-6)


def test_gradients_on_policy_need_no_correction():
    play = problem().play
    rollouts = np.zeros(B, play.dtype)
    actor = Actor(play, seed=0, actor=1)
    for rollout in rollouts:
        actor.rollout(params(0.1), 0, rollout)
    assert rollouts["terminated"].any() and rollouts["resets"].any()
    made = {name: problem(name).gradient(params(0.1), rollouts) for name in CORRECTIONS}
    loss, grads = made.pop("none")
    for name, (other_loss, other) in made.items():
        if name != "vtrace":  # whose traces c are truncated at 0.9 here
            assert float(other_loss) == pytest.approx(float(loss), rel=1e-5)
            for old, new in zip(*map(jax.tree.leaves, (grads, other)), strict=True):
                np.testing.assert_allclose(old, new, rtol=1e-3, atol=1e-5)


def test_an_evaluation_depends_on_the_params_alone():
    first = problem().evaluate(params())
    assert problem().evaluate(params(10.0)) != first
    assert problem().evaluate(params()) == first
    assert 8 <= first["mean_return"] <= 500


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"correction": "retrace"}, "vtrace, one_step"),
        ({"rho": 0.5}, "c from 0 to rho"),
        ({"discount": 1.5}, "discount in"),
        ({"copies": 0}, "positive numbers"),
    ],
)
def test_wrong_settings_are_refused(settings, words):
    with pytest.raises(BadInput, match=words):
        rollout_problem(CARTPOLE, **settings)
