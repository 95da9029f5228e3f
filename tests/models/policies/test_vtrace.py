"""V-trace, by loops over scalars, returns of n steps, and fixed points."""

import itertools

import jax
import numpy as np
import pytest

from dml.models.policies.vtrace import vtrace

T = 7


def steps(seed=0, shape=(T,)):
    rng = np.random.default_rng(seed)
    rewards, values = rng.normal(size=shape), rng.normal(size=(T + 1, *shape[1:]))
    discounts = 0.9 * (rng.random(shape) > 0.2)
    rho = np.minimum(1.5, np.exp(rng.normal(size=shape)))
    return [
        a.astype("f") for a in (rewards, discounts, values, rho, np.minimum(1, rho))
    ]


def reference(rewards, discounts, values, rho, c):
    """Return the targets by the definition: a sum over all later steps."""
    targets = []
    for s in range(len(rewards)):
        target = float(values[s])
        for t in range(s, len(rewards)):
            factor = np.prod(discounts[s:t].astype(float)) * np.prod(
                c[s:t].astype(float)
            )
            error = rewards[t] + discounts[t] * values[t + 1] - values[t]
            target += factor * rho[t] * error
        targets.append(target)
    return np.array(targets)


@pytest.mark.parametrize("seed", range(3))
def test_targets_are_those_of_the_definition(seed):
    made = steps(seed)
    targets, advantages = vtrace(*made)
    expected = reference(*made)
    np.testing.assert_allclose(targets, expected, rtol=1e-5, atol=1e-6)
    rewards, discounts, values, _, _ = made
    later = np.append(expected[1:], values[-1])
    np.testing.assert_allclose(
        advantages, rewards + discounts * later - values[:-1], rtol=1e-5, atol=1e-5
    )


def test_the_reward_of_the_last_step_changes_every_target():
    made = steps()
    made[1][:] = 0.9
    targets, advantages = vtrace(*made)
    made[0][-1] += 1
    more_targets, more_advantages = vtrace(*made)
    assert (np.asarray(more_targets) > np.asarray(targets)).all()
    assert (np.asarray(more_advantages) > np.asarray(advantages)).all()


def test_on_policy_targets_are_returns_of_n_steps_to_the_last_bit():
    rewards, discounts, values, _, _ = steps(3, (T, 50))
    ones = np.ones_like(rewards)

    def backward(target, step):
        reward, discount = step
        target = reward + discount * target
        return target, target

    _, returns = jax.lax.scan(backward, values[-1], (rewards, discounts), reverse=True)
    targets, _ = vtrace(rewards, discounts, values, ones, ones)
    assert np.asarray(targets).tobytes() == np.asarray(returns).tobytes()


def test_a_step_that_only_resets_keeps_the_value_and_cuts_the_trace():
    rewards, discounts, values, rho, c = steps(2)
    reset = 3
    rho[reset] = c[reset] = 0
    targets, _ = vtrace(rewards, discounts, values, rho, c)
    assert targets[reset] == values[reset]
    changed = rewards.copy()
    changed[reset + 1 :] += 10
    later, _ = vtrace(changed, discounts, values, rho, c)
    assert np.array_equal(later[: reset + 1], targets[: reset + 1])


STATES, ACTIONS, GAMMA = 3, 2, 0.9


def tabular_mdp(seed=0):
    """Return transitions P_SxAxS, rewards r_SxAxS, and two policies, SxA."""
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.ones(STATES), (STATES, ACTIONS))
    rewards = rng.normal(size=(STATES, ACTIONS, STATES))
    mu, pi = rng.dirichlet(np.ones(ACTIONS), (2, STATES))
    return transitions, rewards, mu, pi


def trajectories(transitions, mu, start, length):
    """Yield (probability, states, actions) of all trajectories from a state."""
    for choice in itertools.product(range(ACTIONS), range(STATES), repeat=length):
        actions, states = choice[::2], (start, *choice[1::2])
        probability = 1.0
        for t in range(length):
            x, a, y = states[t], actions[t], states[t + 1]
            probability *= mu[x, a] * transitions[x, a, y]
        yield probability, states, actions


def operator(values, mdp, rho, c, length=3):
    """Return the expected targets of the first step of all trajectories, S."""
    transitions, rewards, mu, pi = mdp
    found = []
    for start in range(STATES):
        made = list(trajectories(transitions, mu, start, length))
        probabilities = np.array([p for p, _, _ in made])
        states = np.array([states for _, states, _ in made]).T
        actions = np.array([actions for _, _, actions in made]).T
        ratios = (pi / mu)[states[:-1], actions]
        targets, _ = vtrace(
            rewards[states[:-1], actions, states[1:]],
            np.full(actions.shape, GAMMA),
            values[states],
            np.minimum(rho, ratios),
            np.minimum(c, ratios),
        )
        found.append(probabilities @ np.asarray(targets)[0])
    return np.array(found)


def value_of(policy, transitions, rewards):
    """Return the values of a policy by linear algebra, S."""
    mean_rewards = np.einsum("sa,sat,sat->s", policy, transitions, rewards)
    matrix = np.eye(STATES) - GAMMA * np.einsum("sa,sat->st", policy, transitions)
    return np.linalg.solve(matrix, mean_rewards)


@pytest.mark.parametrize("rho, c", [(1, 1), (0.5, 0.5), (2, 1), (np.inf, np.inf)])
def test_the_fixed_point_is_the_value_of_the_truncated_policy(rho, c):
    mdp = transitions, rewards, mu, pi = tabular_mdp()
    with jax.enable_x64(True):
        start = operator(np.zeros(STATES), mdp, rho, c)
        # the operator is affine: V -> start + matrix V
        columns = [operator(unit, mdp, rho, c) - start for unit in np.eye(STATES)]
    fixed = np.linalg.solve(np.eye(STATES) - np.stack(columns, 1), start)
    weights = pi if rho == np.inf else np.minimum(rho * mu, pi)
    truncated = weights / weights.sum(1, keepdims=True)
    expected = value_of(truncated, transitions, rewards)
    np.testing.assert_allclose(fixed, expected, rtol=0, atol=1e-12)
    far = np.abs(expected - value_of(pi, transitions, rewards)).max()
    assert (far < 1e-12) == (rho == np.inf)


@pytest.mark.parametrize("seed", range(3))
def test_targets_and_advantages_are_those_of_rlax(seed):
    rlax = pytest.importorskip("rlax")
    rewards, discounts, values, _, _ = steps(seed)
    ratios = np.exp(np.random.default_rng(seed).normal(size=T)).astype("f")
    clipped = np.minimum(1, ratios)
    targets, advantages = vtrace(rewards, discounts, values, clipped, clipped)
    expected = rlax.vtrace_td_error_and_advantage(
        values[:-1], values[1:], rewards, discounts, ratios
    )
    errors = np.asarray(targets) - values[:-1]
    np.testing.assert_allclose(errors, expected.errors, rtol=1e-4, atol=1e-5)
    weighted = clipped * np.asarray(advantages)
    np.testing.assert_allclose(weighted, expected.pg_advantage, rtol=1e-4, atol=1e-5)
