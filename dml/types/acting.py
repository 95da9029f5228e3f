"""Environments, policies, and rollouts: fixed numbers of steps of environments.

    observation ─► policy ─► action ─► environment ─► reward, next observation

A rollout is one record of a structured numpy dtype, so a message of a rollout is its
bytes, and a batch of rollouts is an array of records.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from dml.types.learning import Params


class Outcome(NamedTuple):
    """The result of one step of N environments.

    Attributes:
      observations: Observations after the step, NxO in float32; the last observation
        of an episode that ended.
      rewards: Rewards, N in float32.
      terminated: Whether the episode ended in a terminal state, whose value is 0.
      truncated: Whether the episode ended by its limit of steps; the last observation
        has a value, unless the state is also terminal.
    """

    observations: Any
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


class Environments(Protocol):
    """N copies of an environment that are stepped together.

        step     t-1      t (ends)     t+1 (resets)    t+2
        action   a        a            ignored         a
        reward   r        r            0               r
        observation  o    last o       first o         o

    A copy whose episode ended resets in the next step, which ignores its action.
    Learners mask that step. The next step may overwrite the returned arrays.
    """

    @property
    def size(self) -> int:
        """Number N of copies."""
        ...

    def reset(self) -> np.ndarray:
        """Start the first episode of every copy; return its observations, NxO."""
        ...

    def step(self, actions: np.ndarray) -> Outcome:
        """Step every copy by its action."""
        ...


class Environment(NamedTuple):
    """An environment with discrete actions.

    Attributes:
      name: Name of the environment.
      shape: Shape of an observation, in float32.
      actions: Number of actions.
      limit: Largest number of steps of an episode.
      solved: Mean return of an episode from which the environment counts as solved.
      make: (seeds) -> Environments, with a copy for each seed. Random numbers of a copy
        depend only on its seed and the numbers of the episode and the step; the first
        episode has number 0.
    """

    name: str
    shape: tuple[int, ...]
    actions: int
    limit: int
    solved: float
    make: Callable[[Sequence[int]], Environments]


class Policy(NamedTuple):
    """Pure functions of a policy with a value, on JAX arrays.

    Attributes:
      init: random key -> params.
      apply: (params, observations_BxO) -> (logits_BxA, values_B). In Q-learning the
        logits are action values, and the values are their maximum.
    """

    init: Callable[[Any], Params]
    apply: Callable[[Params, Any], tuple[Any, Any]]


class Play(NamedTuple):
    """The acting part of a Problem: the field `play`.

    Strategies of actors pass arrays of rollouts to `Problem.gradient` as batches.

    Attributes:
      environment: Environment of the episodes.
      copies: Number N of environments of an actor.
      length: Number T of steps in a rollout.
      dtype: Structured dtype of a rollout, see `rollout_dtype`.
      act: (params, observations_NxO, draws_N) -> (actions_N, logits_NxA) in numpy. The
        draws are uniform numbers in [0, 1).
      draws: (seed, actor, step, N) -> N uniform numbers of an actor's step in float32,
        which depend only on the arguments.
      errors: (params, batch) -> the priority of each record of a batch, for replay;
        None: the problem has no priorities.
    """

    environment: Environment
    copies: int
    length: int
    dtype: np.dtype
    act: Callable[[Params, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    draws: Callable[[int, int, int, int], np.ndarray]
    errors: Callable[[Params, Any], np.ndarray] | None = None


def rollout_dtype(environment: Environment, copies: int, length: int) -> np.dtype:
    """Return the dtype of a rollout of `length` steps of `copies` environments.

    Fields, the largest first, so that each is aligned:
      versions: Version of the params that selected the actions of step t, T.
      actor: Rank of the actor.
      number: Number of the rollout among those of its actor.
      observations: Before each step, and after the last step, (T+1)xNxO.
      logits: Logits of the policy that acted, TxNxA.
      rewards: Reward of each step, TxN.
      actions: Action of each step, TxN.
      terminated: Whether step t ended an episode in a terminal state, TxN.
      truncated: Whether step t ended an episode by the limit of steps, TxN.
      resets: Whether step t only reset the environment, TxN.
    """
    steps = (length, copies)
    return np.dtype(
        [
            ("versions", np.int64, (length,)),
            ("actor", np.int32),
            ("number", np.int32),
            ("observations", np.float32, (length + 1, copies, *environment.shape)),
            ("logits", np.float32, (*steps, environment.actions)),
            ("rewards", np.float32, steps),
            ("actions", np.int32, steps),
            ("terminated", np.bool_, steps),
            ("truncated", np.bool_, steps),
            ("resets", np.bool_, steps),
        ],
        align=True,
    )
