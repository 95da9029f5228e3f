"""Trainings with an imposed policy lag.

    params of update n-k ─► rollout ─► gradient with the params of update n ─► update

The rollouts of update n are played with params of version n-k, those of the first k
updates with the initial params.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from lab import compiling, parallel
import numpy as np

from dml.case import over_seeds
from dml.environments.named import find
from dml.models.policies.actor import Actor
from dml.models.policies.network import to_numpy
from dml.models.policies.rollouts import rollout_problem
from dml.runs.writers import Row
from dml.types import Problem
from dml.update.dense import apply, make


class Task(NamedTuple):
    """Settings of all trainings.

    Attributes:
      environment: Name of the environment.
      copies: Number of environments of the actor.
      length: Number of steps of a rollout.
      updates: Number of updates.
      points: Number of evaluations, evenly spaced.
      optimizer: Name of the optimizer.
      lr: Learning rate.
      episodes: Number of episodes in an evaluation.
      widths: Numbers of units in the hidden layers.
      loss: Settings of the loss.
    """

    environment: str
    copies: int
    length: int
    updates: int
    points: int
    optimizer: str
    lr: float
    episodes: int
    widths: tuple[int, ...]
    loss: Mapping[str, Any]


class Cell(NamedTuple):
    """A training: its correction, lag in updates, and seed."""

    correction: str
    lag: int
    seed: int

    def __str__(self) -> str:
        return f"{self.correction} with a lag of {self.lag}"


def problem(task: Task, cell: Cell) -> Problem:
    return rollout_problem(
        find(task.environment),
        copies=task.copies,
        length=task.length,
        seed=cell.seed,
        widths=task.widths,
        episodes=task.episodes,
        correction=cell.correction,
        **task.loss,
    )


def train(task: Task, cell: Cell) -> Row:
    """Train with the lag of the cell; return the returns of its evaluations."""
    made = problem(task, cell)
    assert made.play
    actor = Actor(made.play, cell.seed, 0)
    rollouts = np.zeros(1, made.play.dtype)
    optimizer = make(task.optimizer, task.lr)
    params, state = made.params, optimizer.init(made.params)
    history = deque([(0, to_numpy(params))], maxlen=cell.lag + 1)
    every = max(1, task.updates // task.points)
    curve, lags = [], []
    for number in range(task.updates):
        version, old = history[0]
        actor.rollout(old, version, rollouts[0])
        lags.append(number - int(rollouts["versions"].min()))
        _, grads = made.gradient(params, rollouts)
        params, state = apply(optimizer, grads, state, params)
        history.append((number + 1, to_numpy(params)))
        if not (number + 1) % every:
            curve.append(made.evaluate(params)["mean_return"])
    return cell._asdict() | {
        "curve": curve,
        "mean_return": float(np.mean(curve)),
        "final_return": float(np.mean(curve[-max(1, len(curve) // 5) :])),
        "lag_max": max(lags),
        "frames": task.updates * task.copies * task.length,
    }


def rows(
    task: Task,
    corrections: Sequence[str],
    lags: Sequence[int],
    seeds: Sequence[int],
    processes: int,
) -> Iterator[Row]:
    """Train every cell; yield a row for each correction and lag, over the seeds."""
    cells = [Cell(*values) for values in product(corrections, lags, seeds)]
    call, prepare = partial(train, task), compiling.enable_cache
    for trained in parallel.groups(call, cells, len(seeds), processes, prepare):
        yield row(trained)


def row(trained: Sequence[Row]) -> Row:
    """Return the row of trainings that differ by their seeds."""
    first = trained[0]
    made = {name: first[name] for name in ("correction", "lag", "frames")}
    made |= {"seeds": len(trained), **over_seeds(trained, max, "lag_max")}
    made |= over_seeds(trained, lambda curves: np.mean(curves, 0).tolist(), "curve")
    made["curves"] = [each["curve"] for each in trained]
    for name in ("mean_return", "final_return"):
        made |= over_seeds(trained, np.mean, name)
        made[f"{name}_error"] = standard_error([each[name] for each in trained])
    return made


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of a mean; 0 for one value."""
    count = len(values)
    return float(np.std(values, ddof=1) / count**0.5) if count > 1 else 0.0
