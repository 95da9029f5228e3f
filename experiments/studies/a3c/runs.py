"""Trainings by A3C on virtual ranks, until a return is reached.

    worker: episode, FRAME_SECONDS per step ─► gradient ─► server: update ─► params

The server evaluates its params after equal numbers of updates. Once the return is
reached, no worker starts a further minibatch.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from lab import compiling, parallel
import numpy as np

from dml import sim
from dml.case import over_seeds
from dml.data.minibatches import minibatches
from dml.environments.named import find
from dml.metrics.timer import Timer
from dml.models.policies.episodes import episode_problem
from dml.runs.writers import Row
from dml.strategies import strategy
from dml.strategies.server.report import Report
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup
from dml.strategies.server.tables import as_table
from dml.types import CountedComm, Problem
from dml.update.flat import elementwise
from dml.wire.comm import Metered
from dml.wire.server.consistency import Choice, consistency
from dml.wire.server.server import Server
from studies.rl.by_servers import Frames
from studies.rl.settings import EPISODES, Settings

FRAME_SECONDS = 1e-3  # virtual seconds of a step of an episode
UPDATES = 16  # between two evaluations


class Task(NamedTuple):
    """Settings of all trainings.

    Attributes:
      environment: Name of the environment.
      settings: Settings of the training.
      consistency: Name of the consistency of the server.
      target: Return to reach.
      updates: Number of updates without the return after which a training ends.
    """

    environment: str
    settings: Settings
    consistency: str
    target: float
    updates: int


class Cell(NamedTuple):
    """A training: its number of workers, and seed."""

    workers: int
    seed: int

    def __str__(self) -> str:
        return f"{self.workers} workers"


class Watch(Report):
    """A report that evaluates the params of the server at each snapshot.

    Attributes:
      reached: Virtual seconds, updates and frames at which the return was reached.
    """

    def __init__(self, problem: Problem, target: float, frames: list[Frames]) -> None:
        super().__init__()
        self.problem, self.target, self.frames = problem, target, frames
        self.reached: tuple[float, int, int] | None = None

    def add_snapshot(self, seconds: float, clocks: float, server: Server) -> None:
        super().add_snapshot(seconds, clocks, server)
        if not self.reached and self.mean_return(server) >= self.target:
            frames = sum(counter.count for counter in self.frames)
            self.reached = seconds, server.version, frames

    def mean_return(self, server: Server) -> float:
        measures = self.problem.evaluate(np.asarray(server.shard.values))
        return float(measures["mean_return"])

    def until_reached(
        self, batches: Iterator[np.ndarray], clocks: int
    ) -> Iterator[np.ndarray]:
        """Yield minibatches until the return is reached, at most `clocks`."""
        for _, batch in zip(range(clocks), batches, strict=False):
            if self.reached:
                return
            yield batch


def train(task: Task, cell: Cell) -> Row:
    """Train until the return is reached; return frames, updates and virtual seconds."""
    environment, workers = find(task.environment), cell.workers
    settings = task.settings
    counters = [Frames() for _ in range(workers)]

    def make_problem(counter: Frames) -> Problem:
        counted = environment._replace(make=partial(counter.counted, environment))
        return as_table(
            episode_problem(
                counted, seed=cell.seed, widths=settings.widths, **settings.loss
            )
        )

    watch = Watch(make_problem(Frames()), task.target, counters)
    plan = roles(workers + 1, 1, False)
    rule = consistency(task.consistency, Choice(), workers)
    setup = Setup(plan, rule, snapshots=max(1, UPDATES // workers))

    def program(comm: CountedComm) -> None:
        made = watch.problem
        if comm.rank < workers:
            counter = counters[comm.rank]
            made = with_seconds(make_problem(counter), counter, comm)
        batches = minibatches(made.examples, workers * settings.copies, cell.seed)
        steps = strategy("server", made, comm.size)(
            made,
            watch.until_reached(batches, task.updates // workers),
            elementwise(settings.optimizer, settings.lr),
            comm=comm,
            timer=Timer(comm.Wtime),
            setup=setup,
            report=watch if comm.rank == workers else Report(),
        )
        for _ in steps:
            pass

    sim.run(lambda comm: program(Metered(comm)), workers + 1)
    staleness = [entry.staleness for entry in watch.log]
    seconds, updates, frames = watch.reached or (None, None, None)
    return cell._asdict() | {
        "seconds": seconds,
        "updates": updates,
        "frames": frames,
        "staleness_mean": float(np.mean(staleness)),
        "staleness_max": int(np.max(staleness)),
    }


def with_seconds(problem: Problem, frames: Frames, comm: CountedComm) -> Problem:
    """Return the problem whose gradients take virtual seconds by their frames."""

    def gradient(params: Any, batch: Any) -> Any:
        before = frames.count
        made = problem.gradient(params, batch)
        comm.platform.compute(FRAME_SECONDS * (frames.count - before))
        return made

    return problem._replace(gradient=gradient)


def rows(
    task: Task, workers: Sequence[int], seeds: Sequence[int], processes: int
) -> Iterator[Row]:
    """Train every cell; yield a row for each number of workers, over the seeds."""
    cells = [Cell(*values) for values in product(workers, seeds)]
    call, prepare = partial(train, task), compiling.enable_cache
    for trained in parallel.groups(call, cells, len(seeds), processes, prepare):
        yield row(trained)


def row(trained: Sequence[Row]) -> Row:
    """Return the row of trainings that differ by their seeds."""
    names = "seconds", "updates", "frames"
    return {
        "workers": trained[0]["workers"],
        "seeds": len(trained),
        **over_seeds(trained, mean_if_all, *names, by_seed=True),
        **over_seeds(trained, np.mean, "staleness_mean"),
        **over_seeds(trained, max, "staleness_max"),
    }


def mean_if_all(values: Sequence[float | None]) -> float | None:
    """Return the mean, or None if a training did not reach the return."""
    return None if None in values else float(np.mean(values))


def default_task(environment: str, consistency: str, target: float) -> Task:
    """Return the task of an environment; a target of 0 is its return when solved."""
    solved = target or find(environment).solved
    return Task(environment, EPISODES[environment], consistency, solved, 4000)
