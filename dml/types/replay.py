"""Transitions of environments, and batches of transitions for Q-learning."""

from typing import Any, NamedTuple

import numpy as np

from dml.types.acting import Environment
from dml.types.learning import Params


class Replayed(NamedTuple):
    """A batch of transitions: the second argument of `Problem.gradient`.

    Attributes:
      records: Array of B records of `transition_dtype`.
      weights: Importance weight of each transition, B in float32.
      target: Params of the target network, which are not differentiated.
    """

    records: np.ndarray
    weights: Any
    target: Params


def transition_dtype(environment: Environment) -> np.dtype:
    """Return the dtype of a transition of m steps, at most n.

    Fields, the largest first, so that each is aligned:
      version: Version of the params that selected the action.
      observations: Before the first step, and after the last step, 2xO.
      reward: Discounted sum of the m rewards.
      discount: γ^m, the factor of the value of the last observation; 0 if the episode
        ended in a terminal state, and γ^m if it ended by the limit of steps.
      action: Action of the first step.
      actor: Rank of the actor.
    """
    return np.dtype(
        [
            ("version", np.int64),
            ("observations", np.float32, (2, *environment.shape)),
            ("reward", np.float32),
            ("discount", np.float32),
            ("action", np.int32),
            ("actor", np.int32),
        ],
        align=True,
    )
