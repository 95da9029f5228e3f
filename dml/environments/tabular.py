"""Markov decision processes as tables, with exact values and environments.

    state s, action a ─► reward R[s, a], next state s' with probability P[s, a, s']

    V = Σ_a π(a|s) (R[s, a] + γ Σ_s' P[s, a, s'] V[s'])    V = 0 in terminal states

The values of a policy are the solution of these linear equations, without sampling.
They are an oracle for algorithms that learn from the environment of the same tables. An
observation is the state in one-hot code.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dml.environments import draws
from dml.environments.copies import ENDED, EPISODE, SEED, STEP, Copies, kernel
from dml.types import BadInput, Environment


class Process(NamedTuple):
    """A Markov decision process of S states and A actions.

    Attributes:
      transitions_SxAxS: Probability of each next state.
      rewards_SxA: Reward of an action.
      terminal_S: Whether an episode ends on entering a state.
      start_S: Probability of each first state, 0 for terminal states.
    """

    transitions_SxAxS: np.ndarray
    rewards_SxA: np.ndarray
    terminal_S: np.ndarray
    start_S: np.ndarray


def random(
    states: int, actions: int, seed: int, terminal: int = 1, reached: int = 3
) -> Process:
    """Return a random process.

    Args:
      states: Number S of states; the last ones are terminal.
      actions: Number of actions.
      seed: Seed of the tables.
      terminal: Number of terminal states.
      reached: Number of possible next states of an action.
    """
    generator = np.random.default_rng(seed)
    shape = (states, actions)
    targets = generator.permuted(np.tile(np.arange(states), (*shape, 1)), axis=2)
    transitions = np.zeros((*shape, states))
    np.put_along_axis(
        transitions,
        targets[..., :reached],
        generator.dirichlet(np.ones(min(reached, states)), shape),
        axis=2,
    )
    ends = np.arange(states) >= states - terminal
    start = np.where(ends, 0, 1 / max(states - terminal, 1))
    return Process(transitions, generator.normal(size=shape), ends, start)


def values(process: Process, policy_SxA: np.ndarray, discount: float) -> np.ndarray:
    """Return the value V_S of each state under a policy.

    Args:
      process: Process; with a discount of 1, all episodes of the policy must end.
      policy_SxA: Probability of each action.
      discount: Discount γ.
    """
    live = ~process.terminal_S
    moves = np.einsum("sa,sat->st", policy_SxA, process.transitions_SxAxS)
    rewards = (policy_SxA * process.rewards_SxA).sum(1)
    matrix = np.eye(live.sum()) - discount * moves[live][:, live]
    result = np.zeros(len(live))
    result[live] = np.linalg.solve(matrix, rewards[live])
    return result


def action_values(
    process: Process, values_S: np.ndarray, discount: float
) -> np.ndarray:
    """Return the value Q_SxA of each action, from the values of the next states."""
    return process.rewards_SxA + discount * process.transitions_SxAxS @ values_S


def optimum(process: Process, discount: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the optimal values V_S and an optimal policy_SxA, by policy iteration.

    Args:
      process: Process.
      discount: Discount γ, less than 1, or 1 if episodes of all policies end.
    """
    states, actions = process.rewards_SxA.shape
    policy = np.full((states, actions), 1 / actions)
    best = values(process, policy, discount)
    while True:
        better = np.eye(actions)[action_values(process, best, discount).argmax(1)]
        result = values(process, better, discount)
        # with a margin: rounding could otherwise alternate between equal actions
        if (result <= best + 1e-12 * (1 + abs(best))).all():
            return best, policy
        best, policy = result, better


@kernel
def step(copies, tables, actions, observations, rewards, ends):
    """Step all copies; see `copies.Kernel`."""
    states, sums_SxAxS, rewards_SxA, terminal_S, start_sums_S, limit = tables
    known = True
    for n in range(len(actions)):
        action = actions[n]
        live, exists = copies[STEP, n] != ENDED, 0 <= action < rewards_SxA.shape[1]
        known &= exists
        if not exists:
            continue
        rewards[n] = rewards_SxA[states[n], action] if live else 0
        copies[EPISODE, n] += not live
        count = copies[STEP, n] + 1
        place = draws.key(draws.ENVIRONMENT, copies[SEED, n], copies[EPISODE, n], count)
        sums = sums_SxAxS[states[n], action] if live else start_sums_S
        states[n] = first_above(sums, draws.number(place, 0))
        ends[0, n] = terminal_S[states[n]]
        ends[1, n] = live and count >= limit[0]
        copies[STEP, n] = ENDED if ends[0, n] or ends[1, n] else count
        observations[n, :] = 0
        observations[n, states[n]] = 1
    return known


@kernel
def first_above(sums, number):
    """Return the first index whose sum is larger than a number; the last sum is 1."""
    low, high = 0, len(sums) - 1
    while low < high:
        middle = (low + high) // 2
        if sums[middle] > number:
            high = middle
        else:
            low = middle + 1
    return low


def environment(
    name: str, process: Process, limit: int, solved: float = np.inf
) -> Environment:
    """Return an environment of one-hot observations.

    Args:
      name: Name of the environment.
      process: Its process.
      limit: Largest number of steps of an episode.
      solved: Mean return from which the environment counts as solved.
    """
    sums_SxAxS = cumulative(process.transitions_SxAxS)
    start_sums_S = cumulative(process.start_S)
    rewards_SxA = np.array(process.rewards_SxA, np.float64, order="C")
    terminal_S = np.array(process.terminal_S, np.bool_)
    states, actions = rewards_SxA.shape
    if (process.start_S[terminal_S] > 0).any():
        raise BadInput(
            f"expected first states of {name} that are not terminal, got terminal "
            "ones; set their start_S to 0"
        )

    def make(seeds: Sequence[int]) -> Copies:
        current = np.zeros(len(seeds), np.int64)
        tables = (current, sums_SxAxS, rewards_SxA, terminal_S, start_sums_S)
        state = (*tables, np.array([limit]))
        return Copies(step, state, seeds, (states,), actions)

    return Environment(name, (states,), actions, limit, solved, make)


def cumulative(probabilities: np.ndarray) -> np.ndarray:
    """Return the sums of probabilities up to each index of the last axis."""
    total = probabilities.sum(-1)
    if (probabilities < 0).any() or not np.allclose(total, 1):
        raise BadInput(
            f"expected probabilities of at least 0 with a sum of 1, got sums of "
            f"{total.min():.6g} to {total.max():.6g}; divide by the sum"
        )
    sums = np.cumsum(probabilities, -1, dtype=np.float64)
    return np.ascontiguousarray(sums / sums[..., -1:])  # the last sums are exactly 1
