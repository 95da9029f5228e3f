"""CartPole against the equations in Python's own math, and against gymnasium."""

import math

import numpy as np
import pytest

from dml.environments.cartpole import CARTPOLE, LIMIT, cosine, sine


def euler(state, action):
    """The equations of Barto 1983 in scalars: no code or constant of the module."""
    x, speed, angle, turn = state
    force = 10.0 if action == 1 else -10.0
    sin, cos = math.sin(angle), math.cos(angle)
    push = (force + 0.05 * turn**2 * sin) / 1.1
    swing = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    pull = push - 0.05 * swing * cos / 1.1
    return (
        x + 0.02 * speed,
        speed + 0.02 * pull,
        angle + 0.02 * turn,
        turn + 0.02 * swing,
    )


def balance(observations):
    """Return actions of a linear policy that keeps the pole up to the limit."""
    return (observations @ np.array([0.1, 0.5, 3.0, 1.0], np.float32) > 0).astype(int)


def test_sine_and_cosine_are_right_to_the_last_bits():
    for angle in np.linspace(-0.2095, 0.2095, 5001):
        assert abs(sine(angle) - math.sin(angle)) <= math.ulp(math.sin(angle))
        assert abs(cosine(angle) - math.cos(angle)) <= math.ulp(math.cos(angle))


@pytest.mark.parametrize("policy", ["random", "balance"])
def test_each_step_is_an_euler_step_of_the_equations(policy):
    copies = CARTPOLE.make(range(13))
    seen = copies.reset().copy()
    generator = np.random.default_rng(0)
    resets = np.zeros(13, bool)
    ended = 0
    for _ in range(520):
        before = copies.state.T.copy()
        actions = balance(seen) if policy == "balance" else generator.integers(0, 2, 13)
        outcome = copies.step(actions)
        for n in range(13):
            if resets[n]:
                continue
            after = np.array(euler(before[n], actions[n]))
            assert np.allclose(copies.state[:, n], after, rtol=1e-14, atol=1e-16)
            fallen = abs(after[0]) > 2.4 or abs(after[2]) > math.radians(12)
            assert outcome.terminated[n] == fallen
            assert outcome.rewards[n] == 1
        assert (abs(copies.state.T[resets]) <= 0.05).all()
        assert outcome.observations.tobytes() == copies.state.T.astype("f4").tobytes()
        resets = outcome.terminated | outcome.truncated
        ended += resets.sum()
        seen = outcome.observations.copy()
    assert ended > 0


def test_an_episode_is_truncated_after_500_steps():
    copies = CARTPOLE.make(range(4))
    observations = copies.reset()
    for t in range(1, LIMIT + 1):
        outcome = copies.step(balance(observations))
        assert not outcome.terminated.any()
        assert outcome.truncated.all() == outcome.truncated.any() == (t == LIMIT)
        observations = outcome.observations
    assert LIMIT == 500
    outcome = copies.step(np.ones(4, int))
    assert not outcome.rewards.any() and (abs(outcome.observations) <= 0.05).all()


def test_first_states_are_uniform_in_each_component():
    from scipy.stats import kstest

    first = CARTPOLE.make(range(2000)).reset()
    for column in first.T:
        assert kstest(column, "uniform", (-0.05, 0.1)).pvalue > 1e-3
    assert abs(np.corrcoef(first.T) - np.eye(4)).max() < 0.08


def test_steps_equal_those_of_gymnasium():
    gymnasium = pytest.importorskip("gymnasium")
    peer = gymnasium.make("CartPole-v1")
    generator = np.random.default_rng(1)
    ends = 0
    for seed in range(5):
        copies = CARTPOLE.make([seed])
        seen = copies.reset()
        peer.reset(seed=0)
        peer.unwrapped.state = copies.state[:, 0].copy()
        for _ in range(LIMIT):
            actions = generator.integers(0, 2, 1) if seed else balance(seen)
            outcome = copies.step(actions)
            observation, reward, terminated, truncated, _ = peer.step(int(actions[0]))
            assert np.allclose(outcome.observations[0], observation, 1e-6, 1e-7)
            assert outcome.rewards[0] == reward
            assert (outcome.terminated[0], outcome.truncated[0]) == (
                terminated,
                truncated,
            )
            seen = outcome.observations
            if terminated or truncated:
                ends += 1
                break
    assert ends == 5
