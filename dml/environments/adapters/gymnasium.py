"""Environments of gymnasium: `gymnasium:CartPole-v1`, `gymnasium:ALE/Pong-v5`.

gymnasium's SyncVectorEnv steps the copies, and takes a seed for each copy. Vectorised
entry points of environments take a single seed, except that of ALE, which is used for
Atari games: observations are 4 frames of 84x84 in grey, and rewards are not clipped.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dml.environments.adapters import adapted
from dml.types import BadInput, Environment

PREFIX = "gymnasium"
# Modules that register environments, by the part of a name before the slash.
PLUGINS = {"ALE": "ale_py", "MinAtar": "minatar.gym"}
ATARI = "ALE"


def find(name: str) -> Environment:
    """Return the environment of a name in gymnasium's registry."""
    gymnasium = adapted.require(PREFIX)
    namespace = name.partition("/")[0]
    if name not in gymnasium.registry and namespace in PLUGINS:
        plugin = adapted.require(PLUGINS[namespace])
        if name not in gymnasium.registry and hasattr(plugin, "register_envs"):
            plugin.register_envs()
    if ":" not in name:
        adapted.check_name(PREFIX, name, list(gymnasium.registry))
    start = start_atari if namespace == ATARI else start_in_turn
    try:
        with gymnasium.make(name) as one:
            spec, spaces = one.spec, (one.observation_space, one.action_space)
    except (gymnasium.error.Error, ImportError) as error:
        raise BadInput(
            f"expected an environment that gymnasium can make, got {name!r}: "
            f"{str(error).splitlines()[0]}; install its packages"
        ) from error
    limit = spec.max_episode_steps
    if namespace == ATARI:
        limit = spec.kwargs["max_num_frames_per_episode"] // spec.kwargs["frameskip"]
        with_images = gymnasium.make_vec(name, 1, reward_clipping=False)
        spaces = (with_images.single_observation_space, spaces[1])
        with_images.close()
    limit = limit or adapted.LIMIT
    return adapted.environment(
        f"{PREFIX}:{name}",
        spaces,
        limit,
        spec.reward_threshold,
        lambda seeds: partial(start, name, limit, seeds),
    )


def start_in_turn(name: str, limit: int, seeds: Sequence[int]) -> tuple[Any, Any]:
    """Start copies that gymnasium steps one after the other."""
    gymnasium = adapted.require(PREFIX)
    make = partial(gymnasium.make, name, max_episode_steps=limit)
    options = {}
    if hasattr(gymnasium.vector, "AutoresetMode"):  # from version 1.1
        options["autoreset_mode"] = gymnasium.vector.AutoresetMode.NEXT_STEP
    copies = gymnasium.vector.SyncVectorEnv([make] * len(seeds), **options)
    observations, _ = copies.reset(seed=[int(seed) % 2**31 for seed in seeds])
    return observations, copies.step


def start_atari(name: str, limit: int, seeds: Sequence[int]) -> tuple[Any, Any]:
    """Start copies of an Atari game that ALE steps."""
    gymnasium = adapted.require(PREFIX)
    copies = gymnasium.make_vec(name, len(seeds), num_threads=1, reward_clipping=False)
    observations, _ = copies.reset(seed=np.array([int(s) % 2**31 for s in seeds]))
    return observations, copies.step
