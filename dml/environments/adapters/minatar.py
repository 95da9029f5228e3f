"""Games of MinAtar: `minatar:breakout`.

The actions are the minimal set of each game. By the defaults of the package, a copy
repeats its last action with probability 0.1, and the games become harder with time.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dml.environments.adapters import adapted
from dml.types import Environment

PREFIX = "minatar"
GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")


class Box(NamedTuple):
    """Space of observations."""

    shape: tuple[int, ...]


class Discrete(NamedTuple):
    """Space of actions."""

    n: int


def find(name: str) -> Environment:
    """Return the game of a name."""
    minatar = adapted.require(PREFIX)
    adapted.check_name(PREFIX, name, GAMES)
    game = minatar.Environment(name)
    return adapted.environment(
        f"{PREFIX}:{name}",
        (Box(tuple(game.state_shape())), Discrete(len(game.minimal_action_set()))),
        adapted.LIMIT,
        None,
        lambda seeds: partial(start, name, seeds),
    )


def start(name: str, seeds: Sequence[int]) -> tuple[Any, Any]:
    """Start copies that are stepped one after the other."""
    minatar = adapted.require(PREFIX)
    games = [minatar.Environment(name) for _ in seeds]
    for game, seed in zip(games, seeds, strict=True):
        game.seed(int(seed) % 2**32)
        game.reset()
    action_set = np.array(games[0].minimal_action_set())
    counts = np.zeros(len(games), int)
    ended = np.zeros(len(games), bool)

    def advance(actions: np.ndarray) -> tuple[np.ndarray, ...]:
        rewards = np.zeros(len(games))
        terminated = np.zeros(len(games), bool)
        for n, game in enumerate(games):
            if ended[n]:
                game.reset()
                counts[n] = 0
            else:
                rewards[n], terminated[n] = game.act(action_set[actions[n]])
                counts[n] += 1
        truncated = counts >= adapted.LIMIT
        ended[:] = terminated | truncated
        return states(games), rewards, terminated, truncated

    return states(games), advance


def states(games: Sequence[Any]) -> np.ndarray:
    """Return the observations of games."""
    return np.stack([game.state() for game in games])
