"""Environments of gymnax: `gymnax:CartPole-v1`, `gymnax:Breakout-MinAtar`.

One compiled function steps the copies. `step` of gymnax resets a copy in the step that
ends its episode; this function resets it in the next step. The key of a step is a hash
of the seed, the episode and the step.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dml.environments.adapters import adapted
from dml.types import Environment

PREFIX = "gymnax"


def find(name: str) -> Environment:
    """Return the environment of a name in gymnax's list."""
    gymnax = adapted.require(PREFIX)
    adapted.check_name(PREFIX, name, gymnax.registered_envs)
    env, params = gymnax.make(name)
    reset, step = compile_copies(env, params)
    return adapted.environment(
        f"{PREFIX}:{name}",
        (env.observation_space(params), env.action_space(params)),
        params.max_steps_in_episode,
        None,
        lambda seeds: partial(start, reset, step, seeds),
    )


def compile_copies(env: Any, params: Any) -> tuple[Callable[..., Any], ...]:
    """Return functions that reset and step all copies; a copy is (state, place).

    A place is (seed, episode, step, whether the episode ended).
    """
    import jax
    import jax.numpy as jnp

    def key_of(seed: Any, episode: Any, step: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(seed), episode)
        return jax.random.fold_in(key, step)

    def reset(seed: Any) -> Any:
        observation, state = env.reset_env(key_of(seed, 0, 0), params)
        return observation, (state, (seed, jnp.int32(0), jnp.int32(0), False))

    def step(copy: Any, action: Any) -> Any:
        state, (seed, episode, count, ended) = copy
        first = env.reset_env(key_of(seed, episode + 1, 0), params)
        observation, moved, reward, terminated, _ = env.step_env(
            key_of(seed, episode, count + 1), state, action, params
        )
        truncated = env.is_truncated(moved, params)
        observation, state = jax.tree.map(
            partial(jnp.where, ended), first, (observation, moved)
        )
        terminated, truncated = terminated & ~ended, truncated & ~ended
        place = (
            seed,
            episode + ended,
            jnp.where(ended, 0, count + 1),
            terminated | truncated,
        )
        reward = jnp.where(ended, 0, reward)
        return (state, place), (observation, reward, terminated, truncated)

    return jax.jit(jax.vmap(reset)), jax.jit(jax.vmap(step))


def start(reset: Any, step: Any, seeds: Sequence[int]) -> tuple[Any, Any]:
    """Start copies."""
    observations, copies = reset(np.array([int(s) % 2**31 for s in seeds], np.int32))

    def advance(actions: np.ndarray) -> Any:
        nonlocal copies
        copies, outcome = step(copies, actions)
        return outcome

    return observations, advance
