"""V-trace, by loops over scalars, returns of n steps, and fixed points."""

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
