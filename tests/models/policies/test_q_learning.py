"""Q-learning, on tabular MDPs whose action values are known."""

import jax
import numpy as np
import optax
import pytest

from dml.environments.named import find
from dml.models.policies.q_learning import (
    action_values,
    dueling_policy,
    errors,
    q_gradient,
    q_problem,
)
from dml.types import BadInput, Environment, Replayed, transition_dtype
from dml.update.dense import apply

STATES, ACTIONS, GAMMA = 5, 3, 0.9
TABLE = Environment("table", (STATES,), ACTIONS, 10, 1.0, lambda seeds: None)
POLICY = dueling_policy(TABLE.shape, ACTIONS, ())  # linear in one-hot states: a table


def mdp(seed, branches):
    """Return rewards SxA and probabilities SxAxS with a number of next states."""
    random = np.random.default_rng(seed)
    probabilities = np.zeros((STATES, ACTIONS, STATES))
    for row in probabilities.reshape(-1, STATES):
        row[random.choice(STATES, branches, replace=False)] = random.dirichlet(
            np.ones(branches)
        )
    return random.normal(size=(STATES, ACTIONS)), probabilities


def optimum(rewards, probabilities, terminal):
    """Return Q* by value iteration; terminal states have the value 0."""
    values = np.zeros((STATES, ACTIONS))
    for _ in range(2000):
        values = rewards + GAMMA * probabilities @ (values.max(1) * ~terminal)
    return values


def batch_of(rewards, probabilities, terminal, target):
    """Return all transitions of one step, weighted by their probabilities."""
    where = np.argwhere(np.ones_like(probabilities))  # equal shapes: compiled once
    state, action, after = where.T
    records = np.zeros(len(where), transition_dtype(TABLE))
    records["observations"] = np.eye(STATES)[where[:, [0, 2]]]
    records["reward"] = rewards[state, action]
    records["discount"] = GAMMA * ~terminal[after]
    records["action"] = action
    return Replayed(records, np.float32(probabilities[state, action, after]), target)


def table(values):
    """Return params whose action values are a table SxA; V is their mean."""
    params = POLICY.init(jax.random.key(0))
    mean = values.mean(1, keepdims=True)
    arrays = {
        "advantage": {"kernel": values - mean, "bias": np.zeros(ACTIONS)},
        "value": {"kernel": mean, "bias": np.zeros(1)},
    }
    return jax.tree.map(lambda like, array: np.float32(array), params, arrays)


def values_of(params):
    return np.asarray(action_values(params, np.eye(STATES, dtype=np.float32)))


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("branches", [1, 3])
def test_the_gradient_is_zero_at_the_optimal_values_and_nowhere_near(double, branches):
    rewards, probabilities = mdp(branches, branches)
    terminal = np.arange(STATES) == 2
    best = table(optimum(rewards, probabilities, terminal))
    batch = batch_of(rewards, probabilities, terminal, best)
    _, grads = q_gradient(double, 1.0, best, batch)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(grads)) < 1e-6
    if branches == 1:
        assert (batch.weights * errors(double, 1.0, best, batch)).max() < 1e-5
    other = table(values_of(best) + np.eye(STATES, ACTIONS) / 10)
    _, grads = q_gradient(double, 1.0, other, batch._replace(target=other))
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(grads)) > 1e-4


@pytest.mark.parametrize("double", [False, True])
def test_training_with_a_target_network_ends_at_the_optimal_values(double):
    rewards, probabilities = mdp(5, 2)
    terminal = np.arange(STATES) == 0
    params = target = table(np.zeros((STATES, ACTIONS)))
    optimizer = optax.adam(0.1)
    state = optimizer.init(params)
    batch = batch_of(rewards, probabilities, terminal, target)
    for k in range(400):
        if k % 10 == 0:
            target = params
        _, grads = q_gradient(double, 1.0, params, batch._replace(target=target))
        params, state = apply(optimizer, grads, state, params)
    expected = optimum(rewards, probabilities, terminal)
    np.testing.assert_allclose(values_of(params), expected, atol=0.01)


def test_a_terminal_state_has_no_value_and_the_limit_of_steps_does():
    """The transition to the last observation differs in its discount alone."""
    values = np.arange(STATES * ACTIONS, dtype=float).reshape(STATES, ACTIONS)
    params = table(values)
    records = np.zeros(2, transition_dtype(TABLE))
    records["observations"] = np.eye(STATES)[[0, 4]]
    records["discount"], records["reward"] = [0.0, 0.5], 1.0
    found = errors(True, 1.0, params, Replayed(records, np.ones(2, np.float32), params))
    np.testing.assert_allclose(found, [1.0, 1 + 0.5 * 14], rtol=1e-6)


def test_double_q_learning_selects_by_q_and_evaluates_by_the_target():
    """Q prefers action 0 at the last state, Q' action 2."""
    values, target = np.zeros((STATES, ACTIONS)), np.zeros((STATES, ACTIONS))
    values[1], target[1] = [3, 2, 1], [1, 2, 4]
    records = np.zeros(1, transition_dtype(TABLE))
    records["observations"] = np.eye(STATES)[[0, 1]]
    records["discount"] = 1
    batch = Replayed(records, np.ones(1, np.float32), table(target))
    found = [errors(double, 1.0, table(values), batch)[0] for double in (False, True)]
    np.testing.assert_allclose(found, [4, 1], rtol=1e-6)


def test_values_and_errors_scale_with_the_rewards():
    rewards, probabilities = mdp(1, 1)
    values = optimum(rewards, probabilities, np.zeros(STATES, bool))
    params = table(values / 4)
    batch = batch_of(rewards, probabilities, np.zeros(STATES, bool), params)
    assert (batch.weights * errors(True, 0.25, params, batch)).max() < 1e-5
    assert (batch.weights * errors(True, 1.0, params, batch)).max() > 0.1


def test_weights_scale_the_gradient_of_each_transition():
    rewards, probabilities = mdp(1, 1)
    params = table(np.zeros((STATES, ACTIONS)))
    batch = batch_of(rewards, probabilities, np.zeros(STATES, bool), params)
    count = len(batch.records)
    parts = []
    for first in range(0, count, 25):
        weights = np.zeros(count, np.float32)
        weights[first : first + 25] = np.arange(first, first + 25) + 1
        parts.append(q_gradient(True, 1.0, params, batch._replace(weights=weights))[1])
    weights = np.arange(1, count + 1, dtype=np.float32)
    _, grads = q_gradient(True, 1.0, params, batch._replace(weights=weights))
    total = jax.tree.map(lambda *leaves: sum(leaves), *parts)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), grads, total)
    loss, _ = q_gradient(True, 1.0, params, batch)
    squares = errors(True, 1.0, params, batch) ** 2
    assert loss == pytest.approx(np.mean(batch.weights * squares) / 2)


def test_the_gradient_is_that_of_fixed_targets_by_finite_differences():
    """The target depends on the params too, and is not differentiated."""
    environment = find("catch")
    policy = dueling_policy(environment.shape, 3, (8,))
    params = policy.init(jax.random.key(1))
    random = np.random.default_rng(0)
    records = np.zeros(6, transition_dtype(environment))
    records["observations"] = random.normal(size=(6, 2, 50))
    records["action"], records["discount"] = [0, 1, 2, 0, 1, 2], 0.9
    batch = Replayed(records, np.ones(6, np.float32), params)
    _, grads = q_gradient(True, 1.0, params, batch)
    wide = jax.tree.map(np.float64, jax.device_get(params))
    first, last = np.swapaxes(records["observations"], 0, 1).astype(np.float64)
    target = records["discount"] * action_values(wide, last).max(1)

    def loss(change):
        bias = wide["advantage"]["bias"] + change
        other = wide | {"advantage": wide["advantage"] | {"bias": bias}}
        values = action_values(other, first)[np.arange(6), records["action"]]
        return np.mean((target - values) ** 2) / 2

    numeric = [(loss(h) - loss(-h)) / 2e-4 for h in 1e-4 * np.eye(3)]
    np.testing.assert_allclose(grads["advantage"]["bias"], numeric, atol=1e-5)


def test_dueling_values_are_the_value_plus_centred_advantages():
    policy = dueling_policy((4,), 3, (16,))
    params = policy.init(jax.random.key(0))
    observations = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    values, maximum = policy.apply(params, observations)
    hidden = np.maximum(observations @ params["hidden_00"]["kernel"], 0)
    state_value = hidden @ params["value"]["kernel"]
    np.testing.assert_allclose(values.mean(1), state_value[:, 0], atol=1e-5)
    assert np.array_equal(maximum, np.asarray(values).max(1))


def test_actors_have_the_values_of_the_gradient():
    problem = q_problem(find("cartpole"), copies=4)
    play, observations = problem.play, np.random.default_rng(0).normal(size=(4, 4))
    actions, values = play.act(problem.params, observations.astype(np.float32), None)
    np.testing.assert_allclose(
        values, action_values(problem.params, observations), atol=1e-5
    )
    assert np.array_equal(actions, values.argmax(1)) and values.shape == (4, 2)


def test_the_evaluation_of_an_untrained_policy_is_repeatable():
    problem = q_problem(find("catch"), episodes=16, seed=3)
    assert problem.evaluate(problem.params) == problem.evaluate(problem.params)
    assert -1 <= problem.evaluate(problem.params)["mean_return"] <= 1


def test_layers_without_units_are_refused():
    with pytest.raises(BadInput, match="expected observations, actions and layers"):
        dueling_policy((4,), 2, (0,))
