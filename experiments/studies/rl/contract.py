"""The contract of the algorithms of rl.py."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from dml.types import Comm, Params, Problem, Step, identity
from studies.rl.settings import Settings


class Training(NamedTuple):
    """A training on this rank.

    Attributes:
      problem: Evaluates params.
      steps: Steps of this rank. An actor has one, at its end, whose measure `steps` is
        the number of its steps, each of all copies of the environment.
      group: Ranks that yield Steps together; None: this rank is an actor.
      evaluate_every: Number of updates between evaluations; 0: at the end.
      solved: Mean return from which the environment is solved.
      tree: params of a Step -> params of the policy.
    """

    problem: Problem
    steps: Iterator[Step]
    group: Comm | None
    evaluate_every: int
    solved: float
    tree: Callable[[Params], Params] = identity


class Algorithm(NamedTuple):
    """An algorithm.

    Attributes:
      problem: (flags, environment, settings) -> problem.
      train: (flags, problem, settings, communicator, saved) -> Training; `saved` is
        the number of updates and the state of an earlier run, or None.
      settings: Default settings by environment.
      resumes: Whether a run can be saved and resumed.
      words: (flags, problem, size, steps of all actors) -> words sent between actors
        and one learner; None: they are not predicted.
    """

    problem: Callable[..., Problem]
    train: Callable[..., Training]
    settings: Mapping[str, Settings]
    resumes: bool = False
    words: Callable[..., float] | None = None
