"""Tabular processes: exact values against iteration and against episodes."""

from collections import deque

import numpy as np
import pytest

from dml.environments import grid_world, tabular
from dml.types import BadInput

PROCESS = tabular.random(6, 3, seed=1, terminal=2)
DISCOUNT = 0.9


def policy(seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(3), 6)


def backup(process, values, discount):
    """One application of the Bellman operator to the values of actions."""
    live = np.where(process.terminal_S, 0, values)
    return np.array(
        [
            [
                process.rewards_SxA[s, a]
                + discount * process.transitions_SxAxS[s, a] @ live
                for a in range(process.rewards_SxA.shape[1])
            ]
            for s in range(len(values))
        ]
    )


def test_values_of_a_policy_equal_those_of_iteration():
    chosen, iterated = policy(), np.zeros(6)
    for _ in range(400):
        iterated = (chosen * backup(PROCESS, iterated, DISCOUNT)).sum(1)
    live = ~PROCESS.terminal_S
    exact = tabular.values(PROCESS, chosen, DISCOUNT)
    assert np.allclose(exact[live], iterated[live], atol=1e-12)
    assert not exact[~live].any()


def test_the_optimum_equals_that_of_value_iteration():
    iterated = np.zeros(6)
    for _ in range(400):
        iterated = backup(PROCESS, iterated, DISCOUNT).max(1)
    live = ~PROCESS.terminal_S
    best, chosen = tabular.optimum(PROCESS, DISCOUNT)
    assert np.allclose(best[live], iterated[live], atol=1e-12)
    assert np.allclose(tabular.values(PROCESS, chosen, DISCOUNT), best)
    for seed in range(20):
        other = tabular.values(PROCESS, policy(seed), DISCOUNT)
        assert (other <= best + 1e-12).all()


def test_frequencies_of_next_states_are_the_probabilities():
    count = 4000
    copies = tabular.environment("random", PROCESS, 20).make(range(count))
    before = copies.reset().argmax(1)
    live = np.ones(count, bool)
    assert not PROCESS.terminal_S[before].any()
    counts = np.zeros(PROCESS.transitions_SxAxS.shape)
    firsts = np.bincount(before, minlength=6)
    generator = np.random.default_rng(0)
    for _ in range(40):
        actions = generator.integers(0, 3, count)
        outcome = copies.step(actions)
        after = outcome.observations.argmax(1)
        assert (outcome.observations.sum(1) == 1).all()
        np.add.at(counts, (before[live], actions[live], after[live]), 1)
        rewards = np.where(live, PROCESS.rewards_SxA[before, actions], 0)
        assert np.array_equal(outcome.rewards, rewards.astype(np.float32))
        assert np.array_equal(outcome.terminated, PROCESS.terminal_S[after] & live)
        firsts += np.bincount(after[~live], minlength=6)
        before, live = after, ~(outcome.terminated | outcome.truncated)
    total = counts.sum(2, keepdims=True)
    expected = total * PROCESS.transitions_SxAxS
    assert not counts[expected == 0].any()
    error = abs(counts - expected) / np.sqrt(np.maximum(expected, 1))
    assert error.max() < 4.5
    error = abs(firsts - firsts.sum() * PROCESS.start_S) / np.sqrt(firsts.sum())
    assert error.max() < 3


def test_mean_returns_of_episodes_are_the_values():
    count = 4000
    copies = tabular.environment("random", PROCESS, 200).make(range(count))
    chosen = policy()
    first = copies.reset().argmax(1)
    state, live, scale = first, np.ones(count, bool), 1.0
    returns = np.zeros(count)
    generator = np.random.default_rng(0)
    for _ in range(100):
        draws = generator.random((count, 1))
        actions = (draws > np.cumsum(chosen[state], 1)[:, :-1]).sum(1)
        outcome = copies.step(actions)
        returns += np.where(live, scale * outcome.rewards, 0)
        live &= ~outcome.terminated
        state, scale = outcome.observations.argmax(1), scale * DISCOUNT
    exact = tabular.values(PROCESS, chosen, DISCOUNT)
    for s in np.flatnonzero(PROCESS.start_S):
        sample = returns[first == s]
        assert abs(sample.mean() - exact[s]) < 4 * sample.std() / np.sqrt(len(sample))


def test_an_episode_is_truncated_at_the_limit():
    process = tabular.random(4, 2, seed=0, terminal=0)
    copies = tabular.environment("endless", process, 7).make(range(5))
    copies.reset()
    for t in range(1, 17):
        outcome = copies.step(np.zeros(5, int))
        assert not outcome.terminated.any()
        assert outcome.truncated.all() == outcome.truncated.any() == (t % 8 == 7)


@pytest.mark.parametrize(
    "field, message",
    [("transitions_SxAxS", "with a sum of 1"), ("start_S", "that are not terminal")],
)
def test_tables_that_are_no_process_are_refused(field, message):
    table = getattr(PROCESS, field)
    wrong = table * 0.5 if field != "start_S" else np.eye(6)[5]
    with pytest.raises(BadInput, match=message):
        tabular.environment("wrong", PROCESS._replace(**{field: wrong}), 7)


def test_best_returns_of_the_grid_world_are_those_of_shortest_paths():
    places = set(grid_world.cells())
    rows = grid_world.MAP.split()
    (goal,) = [(y, x) for y, x in places if rows[y][x] == "G"]
    distance, queue = {goal: 0}, deque([goal])
    while queue:
        y, x = queue.popleft()
        for near in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
            if near in places and near not in distance:
                distance[near] = distance[y, x] + 1
                queue.append(near)
    assert distance.keys() == places
    best, chosen = tabular.optimum(grid_world.process(), discount=1)
    expected = [
        1 - 0.01 * (distance[p] - 1) if p != goal else 0 for p in grid_world.cells()
    ]
    assert np.allclose(best, expected)
    # the environment pays this return along the path
    copies = grid_world.GRID_WORLD.make([0])
    state, paid = copies.reset().argmax(1), 0.0
    while True:
        outcome = copies.step(chosen[state].argmax(1))
        paid, state = paid + outcome.rewards[0], outcome.observations.argmax(1)
        if outcome.terminated[0]:
            break
    assert np.isclose(paid, max(expected[0], 0)) and paid > grid_world.SOLVED
    assert rows[0][0] == "S"


def test_a_state_without_probability_is_never_drawn():
    sums = np.array([0.0, 0.5, 0.5, 1.0])
    drawn = [tabular.first_above(sums, x) for x in (0.0, 0.25, 0.5, 1 - 2.0**-53)]
    assert drawn == [1, 1, 3, 3]
