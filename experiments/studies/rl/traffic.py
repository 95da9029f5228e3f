"""Predicted words between actors and a learner, by the number of steps of actors.

IMPALA   T steps: n + 2 words of params down, a rollout up; a header at the end
SEED     a step: the outcome of N environments up, N actions down; and once per actor
"""

import math

import jax
import numpy as np

from dml.strategies.actors.assembly import report_dtype
from dml.strategies.actors.impala import HEADER
from dml.types import Play, Problem

WORD = 4  # bytes


def impala_words(problem: Problem, actors: int, steps: int) -> float:
    """Return the words of all messages.

    Args:
      problem: Problem with `play`.
      actors: Number of actors.
      steps: Number of steps of all actors, each of all copies.
    """
    play = playing(problem)
    down = HEADER + parameters(problem)
    rollouts = steps / play.length
    return rollouts * (down + play.dtype.itemsize / WORD) + actors * HEADER


def seed_words(problem: Problem, actors: int, steps: int) -> float:
    """Return the words of all messages; see `impala_words`."""
    play = playing(problem)
    each = report_dtype(play).itemsize / WORD + play.copies
    return (steps + actors) * each


def playing(problem: Problem) -> Play:
    assert problem.play
    return problem.play


def parameters(problem: Problem) -> int:
    """Return the number of parameters."""
    return sum(math.prod(np.shape(leaf)) for leaf in jax.tree.leaves(problem.params))
