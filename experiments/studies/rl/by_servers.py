"""Training by workers and parameter servers: A3C."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from lab import flags
import numpy as np

from dml.data.minibatches import minibatches
from dml.environments.named import find
from dml.metrics.timer import Timer
from dml.strategies import strategy
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup
from dml.strategies.server.tables import as_table, unpack_table
from dml.types import (
    BadInput,
    CountedComm,
    Environment,
    Environments,
    Outcome,
    Problem,
    Step,
)
from dml.update.flat import elementwise
from dml.wire.collectives import tree_allreduce
from dml.wire.comm.buffers import layout
from dml.wire.comm.metered import uncounted
from dml.wire.comm.once import once
from dml.wire.server.consistency import Choice, consistency
from studies.rl.contract import Training
from studies.rl.settings import Settings


def problem(
    values: flags.FlagValues, environment: Environment, chosen: Settings
) -> Problem:
    """Return the problem of episodes."""
    from dml.models.policies.episodes import episode_problem

    return episode_problem(
        environment, seed=values.seed, widths=chosen.widths, **chosen.loss
    )


def train(
    values: flags.FlagValues,
    problem_of_tree: Problem,
    chosen: Settings,
    comm: CountedComm,
    saved: Any,
) -> Training:
    """Return the training of this rank; see `contract.Algorithm`."""
    if values.elastic:
        raise BadInput(
            "expected --algorithm=impala, seed or apex with --elastic, got a3c; pass "
            "one of these, or use server.py --elastic"
        )
    plan = roles(comm.size, values.servers)
    rule = consistency(values.consistency, Choice(values.staleness), plan.workers)
    environment, frames = find(values.environment), Frames()
    counted = environment._replace(make=partial(frames.counted, environment))
    own = problem(values, counted, chosen)
    batch, updates = plan.workers * chosen.copies, values.updates
    every = min(values.evaluate_every or updates, updates)
    measures: dict[str, Any] = {}
    steps = strategy("server", own, comm.size)(
        own,
        islice(minibatches(own.examples, batch, values.seed), updates),
        elementwise(chosen.optimizer, chosen.lr),
        comm=flags.delayed(values, comm),
        timer=Timer(comm.Wtime),
        setup=Setup(plan, rule),
        every=every,
        summary=measures,
    )
    table = once(comm, "table", id(problem_of_tree), partial(as_table, problem_of_tree))
    every = values.evaluate_every
    steps = measured(steps, comm, measures, frames, batch)
    tree = partial(unpack_table, flat_layout=layout(problem_of_tree.params))
    return Training(table, steps, comm, every, environment.solved, tree)


def measured(
    steps: Iterator[Step],
    comm: CountedComm,
    measures: Mapping[str, Any],
    frames: "Frames",
    batch: int,
) -> Iterator[Step]:
    """Yield the steps, each of several clocks, with frames, and staleness as lag.

    Args:
      steps: Steps of all ranks.
      comm: All ranks.
      measures: Measures of all steps so far.
      frames: Frames of this rank.
      batch: Number of episodes of all workers in a clock.
    """
    done = 0
    for step in steps:
        played = np.array([frames.count])
        tree_allreduce(uncounted(comm), played)
        frames.count = 0
        lag = {
            "lag_mean": measures["staleness_mean"],
            "lag_max": measures["staleness_max"],
            "frames": int(played[0]),
        }
        episodes, done = batch * (step.number - done), step.number
        measured = {**step.measures, **lag}
        yield step._replace(measures=measured, epoch=None, examples=episodes)


class Frames:
    """Count of the steps of episodes, without steps after their ends."""

    count = 0

    def counted(self, environment: Environment, seeds: Sequence[int]) -> Environments:
        return Counted(environment.make(seeds), self)


class Counted:
    """Environments whose steps are counted."""

    def __init__(self, environments: Environments, frames: Frames) -> None:
        self.environments, self.frames = environments, frames
        self.size = environments.size
        self.playing = np.ones(self.size, np.bool_)

    def reset(self) -> np.ndarray:
        return self.environments.reset()

    def step(self, actions: np.ndarray) -> Outcome:
        self.frames.count += int(np.count_nonzero(self.playing))
        outcome = self.environments.step(actions)
        self.playing &= ~(outcome.terminated | outcome.truncated)
        return outcome
