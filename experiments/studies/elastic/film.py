"""watch.html: training on virtual ranks of which some die, and the recoveries."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lab.timelines import timer
from lab.watching import Recording
import numpy as np

from dml import sim
from dml.sim.events import Death
from dml.strategies.elastic import Elastic, Saved
from dml.strategies.synchronous import synchronous
from dml.types import Interval, Problem, Rows, Step, Timeline
from dml.update.table import table
from dml.wire.collectives.ring import ring_allreduce
from dml.wire.comm import Metered
from dml.wire.recovery import Members
from dml.wire.reducers.fixed_point import order_free
from studies.elastic.real import Kill

MEAN = 2e-4  # virtual seconds between two deaths by default
STEPS, SHARDS, EXAMPLES, PARAMETERS, RATE = 10, 12, 48, 4096, 0.25
SHARD_SECONDS = 1e-5  # of the gradient of a logical shard
TEXTS = ("of another rank, or not computed", "gradient computed", "update committed")
PALETTE = ("#b9c0c7", "#3b76c0", "#4aa06e")
COMPUTED, COMMITTED = 1, 2
COLOURS = {"recovery": "#c8321e", "dead": "#000000"}


class Worker:
    """The training of one rank: linear regression whose best parameters are 1.

    Args:
      comm: Traced communicator of all ranks.
      workers: Number of workers at the start; the other ranks are spares.
      recording: Receives the states of the logical shards of a minibatch.
    """

    def __init__(self, comm: Any, workers: int, recording: Recording):
        self.comm, self.recording = comm, recording
        self.values, self.step = np.zeros(SHARDS, int), -1
        self.show()
        start = Saved(0, lambda: np.zeros((1, PARAMETERS), np.float32), tuple)
        self.run = Elastic(Members(Metered(comm), workers), self.attempt, start, STEPS)

    def train(self) -> list[tuple[float, float]]:
        """Train; return time and seconds of each recovery of this rank."""
        for _ in self.run.steps():
            self.values[self.values == COMPUTED] = COMMITTED
            self.show()
        self.run.finish(lambda workers: None)
        return [(one.time, one.seconds) for one in self.run.members.recoveries]

    def attempt(
        self, comm: Any, saved: Saved, commit: Callable[[], object]
    ) -> Iterator[Step]:
        """Yield the Steps after a state, on the ranks that are now workers."""
        self.step = -1
        problem = Problem(saved.params(), STEPS * EXAMPLES, self.gradient, dict)
        batches = np.arange(STEPS * EXAMPLES).reshape(STEPS, EXAMPLES)[saved.number :]
        steps = synchronous(
            problem,
            batches,
            partial(table, "sgd", rate=RATE),
            comm=comm,
            timer=timer(comm, comm.Wtime),
            reducer=order_free(ring_allreduce),
            shards=SHARDS,
            commit=commit,
        )
        for step in steps:
            yield step._replace(number=saved.number + step.number)

    def gradient(self, row_1xP: np.ndarray, indices: np.ndarray) -> tuple[float, Rows]:
        """Return loss and gradient of a logical shard; it takes virtual time."""
        step, first = divmod(int(indices[0]), EXAMPLES)
        if step != self.step:
            self.values[:], self.step = 0, step
        self.comm.platform.compute(SHARD_SECONDS)
        self.values[first * SHARDS // EXAMPLES] = COMPUTED
        self.show()
        return 0.0, Rows(np.zeros(1, np.int32), row_1xP - 1)

    def show(self) -> None:
        self.recording.show(self.comm.rank, self.values)


def write(path: Path, ranks: int, spares: int, deaths: Sequence[Kill]) -> int:
    """Train on virtual ranks and write the page; return the number of recoveries.

    Args:
      path: Path of the page.
      ranks: Number of workers and spares.
      spares: Number of spares, which are the last ranks.
      deaths: Times and ranks of deaths.
    """
    recording = Recording(ranks)

    def program(comm: Any) -> list[tuple[float, float]]:
        return Worker(recording.wrap(comm), ranks - spares, recording).train()

    events = [Death(one.process, one.time) for one in deaths]
    recoveries = sim.run(program, ranks, events=events)
    timeline = recording.timeline()
    end = max(one.end for one in timeline.intervals)
    died = [one for one in events if one.start < end]
    special = [Interval(one.rank, "dead", one.start, end) for one in died]
    special += [
        Interval(rank, "recovery", time, time + seconds)
        for rank, found in enumerate(recoveries)
        for time, seconds in found or ()
    ]
    calls = [
        one for one in timeline.intervals if not any(map(partial(within, one), special))
    ]
    phases = sorted([*calls, *special], key=lambda one: one.start)
    count = len(next(found for found in recoveries if found is not None))
    recording.write(
        path,
        f"elastic training, {ranks} ranks",
        f"{STEPS} updates on virtual ranks, recorded from a run of the code. A strip "
        f"has a chunk for each of the {SHARDS} logical shards of a minibatch: the "
        "workers divide them anew after a death, and repeat the update that was not "
        "committed. "
        f"Spares: {spares}. Deaths: {len(died)}. Recoveries: {count}.",
        Timeline(phases, timeline.messages),
        levels=dict(enumerate(TEXTS)),
        palette=PALETTE,
        colours=COLOURS,
    )
    return count


def within(one: Interval, other: Interval) -> bool:
    """Return whether an interval is part of another one of the same rank."""
    return one.rank == other.rank and other.start <= one.start and one.end <= other.end
