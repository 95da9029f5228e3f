"""Steppers: copies of an environment in this project and in other packages.

A stepper steps all copies by an array of actions. It resets copies whose episodes
ended: in the next step, gymnax in the same step.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dml.environments.adapters.adapted import require
from dml.environments.named import find
from dml.types import Environment

MAX_PROCESSES = 8  # gymnasium's async mode has one for each copy
SCAN = 64  # steps of a compiled loop of gymnax
THREADS = {"envpool_1": 1, "envpool_2": 2}


class Names(NamedTuple):
    """Names of an environment in other packages; empty: the package has none."""

    envpool: str
    gymnasium: str
    gymnax: str


NAMES: Mapping[str, Names] = {
    "cartpole": Names("CartPole-v1", "CartPole-v1", "CartPole-v1"),
    "catch": Names("Catch-v0", "", "Catch-bsuite"),
}
NOWHERE = Names("", "", "")


class Stepper(NamedTuple):
    """A function that steps N copies, with its number of steps.

    Attributes:
      step: Function that steps all copies by actions: N, or SCANxN.
      steps: Number of steps of one call.
      dtype: Type of the actions.
      close: Function that ends processes and threads.
    """

    step: Callable[[np.ndarray], Any]
    steps: int = 1
    dtype: Any = np.int64
    close: Callable[[], Any] = lambda: None


def own(environment: Environment, copies: int) -> Stepper:
    """Return the stepper of this project."""
    made = environment.make(range(copies))
    made.reset()
    return Stepper(made.step)


def envpool(environment: Environment, copies: int, threads: int) -> Stepper | None:
    """Return the stepper of envpool."""
    name = NAMES.get(environment.name, NOWHERE).envpool
    if not name:
        return None
    made = require("envpool").make_gymnasium(
        name, num_envs=copies, num_threads=threads, seed=0
    )
    made.reset()
    return Stepper(made.step, dtype=np.int32, close=made.close)


def gymnasium(environment: Environment, copies: int, mode: str) -> Stepper | None:
    """Return the stepper of a mode of gymnasium's make_vec."""
    name = NAMES.get(environment.name, NOWHERE).gymnasium
    if not name or (mode == "async" and copies > MAX_PROCESSES):
        return None
    options = {"vector_kwargs": {"context": "spawn"}} if mode == "async" else {}
    made = require("gymnasium").make_vec(
        name, copies, vectorization_mode=mode, **options
    )
    made.reset(seed=0)
    return Stepper(made.step, close=made.close)


def gymnax(environment: Environment, copies: int) -> Stepper | None:
    """Return the stepper of gymnax: a compiled loop over steps of all copies."""
    name = NAMES.get(environment.name, NOWHERE).gymnax
    if not name:
        return None
    package = require("gymnax")
    import jax

    env, params = package.make(name)
    keys = jax.random.split(jax.random.key(0), copies)
    _, states = jax.vmap(env.reset, (0, None))(keys, params)
    step_copies = jax.vmap(env.step, (0, 0, 0, None))

    @jax.jit
    def scan(carry: Any, actions: Any) -> Any:
        def one(carry: Any, actions: Any) -> Any:
            key, states = carry
            key, own = jax.random.split(key)
            keys = jax.random.split(own, copies)
            observations, states, rewards, *ends, _ = step_copies(
                keys, states, actions, params
            )
            return (key, states), (observations, rewards, *ends)

        return jax.lax.scan(one, carry, actions)

    carry = (jax.random.key(1), states)

    def advance(actions: np.ndarray) -> Any:
        nonlocal carry
        carry, outcomes = scan(carry, actions)
        return jax.block_until_ready(outcomes)

    return Stepper(advance, SCAN, np.int32)


OWN = "dml"
STEPPERS: Mapping[str, Callable[[Environment, int], Stepper | None]] = {
    OWN: own,
    "envpool_1": lambda environment, copies: envpool(environment, copies, 1),
    "envpool_2": lambda environment, copies: envpool(environment, copies, 2),
    "gymnasium_vector": lambda environment, copies: gymnasium(
        environment, copies, "vector_entry_point"
    ),
    "gymnasium_sync": lambda environment, copies: gymnasium(
        environment, copies, "sync"
    ),
    "gymnasium_async": lambda environment, copies: gymnasium(
        environment, copies, "async"
    ),
    "gymnax": gymnax,
}


def make(name: str, environment: str, copies: int) -> Stepper | None:
    """Return a stepper; None if its package does not have the environment.

    Args:
      name: Key of STEPPERS.
      environment: Name of the environment.
      copies: Number of copies.

    Raises:
      BadInput: The package is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages
        return STEPPERS[name](find(environment), copies)
