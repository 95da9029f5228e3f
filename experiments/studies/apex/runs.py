"""Trainings by Ape-X on virtual ranks, until a return is reached.

apex          prioritised replay, 6 actors with ε from 0.4 to 0.0007
uniform       all transitions are equally probable: α = 0
one_epsilon   all actors have the geometric mean of the ε of apex
fewer_actors  2 actors: a third of the new transitions per update

The learner evaluates greedy episodes after equal numbers of updates.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from statistics import median
from typing import Any, NamedTuple

from lab import compiling, parallel

from dml import sim
from dml.case import Case, over_seeds, steps
from dml.environments.named import find
from dml.models.policies.q_learning import q_problem
from dml.problems import given
from dml.runs.writers import Row
from dml.strategies.actors.apex.settings import ApexSettings as Replay
from dml.types import Comm
from dml.update.dense import make
from studies.rl.settings import REPLAY, Settings

EPSILON, SPREAD, ACTORS, FEWER = 0.4, 7.0, 6, 2
METHODS: Mapping[str, Mapping[str, Any]] = {
    "apex": {},
    "uniform": {"alpha": 0.0},
    "one_epsilon": {"epsilon": EPSILON ** (1 + SPREAD / 2), "spread": 0.0},
    "fewer_actors": {"actors": FEWER},
}


class Task(NamedTuple):
    """Settings of all trainings.

    Attributes:
      environment: Name of the environment.
      settings: Settings of the training.
      updates: Number of updates without the return after which a training ends.
      every: Number of updates between two evaluations.
    """

    environment: str
    settings: Settings
    updates: int
    every: int


class Cell(NamedTuple):
    """A training: its method, and seed."""

    method: str
    seed: int

    def __str__(self) -> str:
        return self.method


def train(task: Task, cell: Cell) -> Row:
    """Train until the return is reached; return updates and frames, None if not."""
    environment, settings = find(task.environment), task.settings
    problem = q_problem(
        environment,
        copies=settings.copies,
        length=settings.length,
        widths=settings.widths,
        seed=cell.seed,
        **settings.loss,
    )
    method = dict(METHODS[cell.method])
    actors = method.pop("actors", ACTORS)
    own = {**settings.replay, **method}
    ratio = own.get("ratio", Replay().ratio) * ACTORS / actors
    own |= {"ratio": ratio, "seed": cell.seed, "report_every": task.every}
    update = make(settings.optimizer, settings.lr)
    case = Case(given(problem, [0] * task.updates, update), "apex", own)

    def program(comm: Comm) -> Row:
        frames = 0
        for step in steps(case, comm):
            if comm.rank == 0:
                frames += int(step.measures["frames"])
                score = problem.evaluate(step.params())["mean_return"]
                if score >= environment.solved:
                    return {"updates": step.number, "frames": frames}
        return {"updates": None, "frames": None}

    return cell._asdict() | sim.run(program, 2 + actors)[0]


def rows(task: Task, seeds: Sequence[int], processes: int) -> Iterator[Row]:
    """Train every cell; yield a row for each method, over the seeds."""
    cells = [Cell(*values) for values in product(METHODS, seeds)]
    call, prepare = partial(train, task), compiling.enable_cache
    for trained in parallel.groups(call, cells, len(seeds), processes, prepare):
        yield row(trained)


def row(trained: Sequence[Row]) -> Row:
    """Return the row of trainings that differ by their seeds."""
    return {
        "method": trained[0]["method"],
        "seeds": len(trained),
        **over_seeds(trained, median_of_all, "updates", "frames", by_seed=True),
        "reached": sum(each["updates"] is not None for each in trained),
    }


def median_of_all(values: Sequence[float | None]) -> float | None:
    """Return the median, or None unless most trainings reached the return."""
    middle = median(math.inf if value is None else value for value in values)
    return None if middle == math.inf else middle


def default_task(environment: str, updates: int, every: int) -> Task:
    """Return the task of an environment with the settings of rl.py."""
    return Task(environment, REPLAY[environment], updates, every)
