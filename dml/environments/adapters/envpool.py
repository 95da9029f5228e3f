"""Environments of envpool: `envpool:CartPole-v1`, `envpool:Pong-v5`.

envpool resets a copy in the step after the end of an episode, and takes a seed for each
copy.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from dml.environments.adapters import adapted
from dml.types import Environment

PREFIX = "envpool"


def find(name: str) -> Environment:
    """Return the environment of a name in envpool's list."""
    envpool = adapted.require(PREFIX)
    adapted.check_name(PREFIX, name, envpool.list_all_envs())
    spec = envpool.make_spec(name)
    limit = int(spec.config.max_episode_steps)
    limit = adapted.LIMIT if limit == adapted.NO_LIMIT else limit
    return adapted.environment(
        f"{PREFIX}:{name}",
        (spec.observation_space, spec.action_space),
        limit,
        spec.reward_threshold,
        lambda seeds: partial(start, name, limit, seeds),
    )


def start(name: str, limit: int, seeds: Sequence[int]) -> tuple[Any, Any]:
    """Start copies that one thread steps."""
    copies = adapted.require(PREFIX).make_gymnasium(
        name,
        num_envs=len(seeds),
        num_threads=1,
        seed=[int(seed) % 2**31 for seed in seeds],
        max_episode_steps=limit,
    )
    observations, _ = copies.reset()
    return observations, copies.step
