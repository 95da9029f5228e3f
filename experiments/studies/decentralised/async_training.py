"""Trainings of async_diloco.py: workers of unequal speed on a mixture of Gaussians."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from lab import flags, options
import numpy as np

from dml import sim
from dml.case import Case, steps
from dml.data.minibatches import draws
from dml.evaluation.scores import evaluate
from dml.models.networks.mlp import mlp
from dml.problems import given
from dml.strategies import load
from dml.task import Task
from dml.types import Batch, Comm, CountedComm
from dml.update.dense import make
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Delayed, Metered
from dml.wire.comm.buffers import TreeLayout, layout, unpack
from dml.wire.reducers.exact import exact

CLASSES, CLUSTERS = 4, 8  # clusters of a class
HELD_OUT = 4000  # examples of the evaluation


class Method(NamedTuple):
    """A strategy, its options, and the flag of its outer learning rate."""

    strategy: str
    own: Mapping[str, Any] = {}
    rate: str = "outer_lr"  # flag of the outer learning rate


EVERY_ARRIVAL = {"momentum_every": 1}  # momentum at every arrival
METHODS: Mapping[str, Method] = {
    "synchronous": Method("diloco"),
    "nesterov": Method("async_diloco", EVERY_ARRIVAL, "async_lr"),
    "sgd": Method("async_diloco", EVERY_ARRIVAL | {"outer_momentum": 0.0}),
    "delayed_nesterov": Method("async_diloco"),
    "dynamic": Method("async_diloco", {"dynamic": True}),
    "ad_psgd": Method("ad_psgd"),
}


class Point(NamedTuple):
    """An evaluation in a training.

    Attributes:
      seconds: Virtual seconds.
      updates: Number of updates of all ranks.
      loss: Loss on held-out examples.
      accuracy: Accuracy on held-out examples.
    """

    seconds: float
    updates: int
    loss: float
    accuracy: float


class Trace(NamedTuple):
    """The record of a training; all times in virtual seconds.

    Attributes:
      ends: End of each update of any rank.
      vectors: For each rank, times and packed parameters; outer parameters on rank 0.
    """

    ends: list[float]
    vectors: list[list[tuple[float, np.ndarray]]]


def make_task(values: flags.FlagValues, seed: int) -> Task:
    """Return a network and examples of Gaussians, several in each class."""
    generator = np.random.default_rng(seed)
    centers_KxD = generator.standard_normal((CLASSES * CLUSTERS, values.features))
    centers_KxD /= np.linalg.norm(centers_KxD, axis=1, keepdims=True)

    def sample(count: int) -> Batch:
        cluster = generator.integers(len(centers_KxD), size=count)
        noise = values.noise * generator.standard_normal((count, values.features))
        inputs = (centers_KxD[cluster] + noise).astype(np.float32)
        return Batch(inputs, (cluster // CLUSTERS).astype(np.int32))

    model = mlp((values.features,), CLASSES, widths=(values.width,))
    return Task(model, sample(values.examples), sample(HELD_OUT))


def lengths(speeds: Sequence[float], updates: int) -> list[int]:
    """Return the number of updates of each rank, in proportion to its speed."""
    rates = 1 / np.array(speeds)
    return [max(1, round(share)) for share in updates * rates / rates.sum()]


def train(
    task: Task, name: str, speeds: Sequence[float], seed: int, values: flags.FlagValues
) -> list[Point]:
    """Train by a method on virtual ranks; return the curve of the outer parameters.

    All methods have the same number of updates. In a synchronous method, each rank has
    `--phases` tasks of `--period` updates.

    Args:
      task: Network and examples.
      name: A key of METHODS.
      speeds: Seconds per update of each rank.
      seed: Seed of the minibatches.
      values: The flags.
    """
    method, size = METHODS[name], len(speeds)
    updates, batch = values.phases * values.period, size * values.batch
    own = {"outer_every": values.period, "outer_lr": values[method.rate].value}
    own |= {"outer_momentum": values.outer_momentum, **method.own}
    counts, rate = [updates] * size, values.lr
    has = partial(options.takes, load(method.strategy))
    pairs = not has(["outer_every"])  # average with each other, each at its own speed
    if pairs:
        own, rate = {"seed": seed}, values.pair_lr
        counts = lengths(speeds, updates * size)
    if has(["reducer"]):
        own["reducer"] = exact(ALLREDUCE["star"])
    problem, total = task.problem(seed), batch * max(counts)
    minibatches = list(draws(problem.examples, batch, seed, total))
    entry = given(problem, minibatches, make("adamw", rate, decay=values.decay))
    case = Case(entry, method.strategy, own)
    strides = [max(1, each // values.points) for each in counts]
    trace = Trace([], [[] for _ in speeds])

    def program(comm: Comm) -> None:
        rank, calls = comm.rank, iter(range(sum(counts)))
        made = Metered(Delayed(comm, recorded_draws(comm, speeds[rank], trace.ends)))
        every = strides[rank] if pairs else 1

        def observe(vector: np.ndarray) -> None:
            if (next(calls) + 1) % every == 0:
                trace.vectors[rank].append((comm.Wtime(), vector.copy()))

        observed = {"observe": observe} if has(["observe"]) else {}
        own_case = case._replace(steps=counts[rank], options=own | observed)
        for step in steps(own_case, made):
            if not observed:
                observe(step.memory().vector)

    sim.run(program, size)
    if not pairs:
        trace = trace._replace(vectors=trace.vectors[:1])
    return curve(task, trace, layout(problem.params), values.points)


def recorded_draws(
    comm: CountedComm, speed: float, ends: list[float]
) -> Iterator[float]:
    """Yield the seconds of each update of a rank; append the time of its end."""
    while True:
        ends.append(comm.Wtime() + speed)
        yield speed


def curve(task: Task, trace: Trace, like: TreeLayout, points: int) -> list[Point]:
    """Return evaluations of the parameters of a rank, or of the mean of all ranks.

    Args:
      task: Network and examples.
      trace: Record of the training.
      like: Layout of the packed parameters.
      points: Largest number of points.
    """
    times = [[time for time, _ in rank] for rank in trace.vectors]
    last = times[0] if len(times) == 1 else np.unique(np.concatenate(times))
    last = [time for time in last if all(rank[0] <= time for rank in times)]
    chosen = np.unique(np.linspace(0, len(last) - 1, points).round().astype(int))
    ends, evaluated = np.sort(trace.ends), []
    for time in np.array(last)[chosen].tolist():
        vectors = [
            rank[int(np.searchsorted(own, time, "right")) - 1][1]
            for rank, own in zip(trace.vectors, times, strict=True)
        ]
        params = unpack(np.mean(vectors, axis=0, dtype=np.float32), like)
        scores = evaluate(task.model, task.held_out, params)
        updates = int(np.searchsorted(ends, time, "right"))
        loss, accuracy = float(scores["cross_entropy"]), float(scores["accuracy"])
        evaluated.append(Point(time, updates, loss, accuracy))
    return evaluated
