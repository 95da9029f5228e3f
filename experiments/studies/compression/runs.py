"""Trainings with compressed gradients on virtual ranks, and times of the codes."""

import statistics
import time
from typing import NamedTuple

from lab import flags
import jax
import numpy as np

from dml import sim
from dml.case import Case, Measured, measure
from dml.problems import Entry
from dml.types import CountedComm, Problem
from dml.update.dense import make
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.comm.buffers import layout
from studies.compression.problems import Settings


class Costs(NamedTuple):
    """The measured seconds of an update on one rank.

    Attributes:
      gradient: Seconds of the gradient of a rank's examples.
      codec: Seconds of coding and decoding.
    """

    gradient: float
    codec: float


def network(values: flags.FlagValues) -> sim.Uniform:
    """Return the virtual network of --gbps and --latency_us."""
    return sim.Uniform(alpha=1e-6 * values.latency_us, beta=8e-9 / values.gbps)


def train(
    task: Problem, name: str, own: Settings, seed: int, values: flags.FlagValues
) -> Measured:
    """Train with a reducer on virtual ranks; return the result of rank 0.

    The seconds of a step are those of the messages on the virtual network.
    """
    case = Case(
        Entry(lambda: task, own.batch, make(own.optimizer, own.lr)),
        "synchronous",
        lambda: {"reducer": flags.reducer(name, ALLREDUCE["ring"])},
        ranks=values.ranks,
        network=network(values),
        steps=values.steps,
        seed=seed,
    )
    return measure(case)[0]


def gradient_seconds(task: Problem, batch: int, values: flags.FlagValues) -> float:
    """Return the median processor seconds of the gradient of one rank's examples."""
    taken = task.take(np.arange(max(1, batch // values.ranks)))
    times = []
    for _ in range(values.repeats + 1):  # the first one compiles
        start = time.process_time()
        jax.block_until_ready(task.gradient(task.params, taken))
        times.append(time.process_time() - start)
    return statistics.median(times[1:])


def reduction_seconds(task: Problem, name: str, values: flags.FlagValues) -> float:
    """Return the median processor seconds of a reduction on virtual ranks, per rank."""
    shape = layout(task.params)
    draws = np.random.default_rng(values.seed)
    grads = draws.standard_normal(shape.length, np.float32)

    def program(comm: CountedComm) -> None:
        made = flags.reducer(name, ALLREDUCE["ring"])
        state, buffer = made.init(shape), np.empty_like(grads)
        for _ in range(values.repeats + 1):  # the first one compiles
            buffer[:] = grads
            comm.Barrier()
            if comm.rank == 0:
                times.append(time.process_time())
            state = made.reduce(comm, buffer, state)
        comm.Barrier()
        if comm.rank == 0:
            times.append(time.process_time())

    times: list[float] = []
    sim.run(program, values.ranks)
    return statistics.median(np.diff(times)[1:]) / values.ranks


def equal_bytes(task: Problem, name: str, values: flags.FlagValues) -> list[str]:
    """Return random_k and top_k with feedback that send as many bytes as a reducer."""

    def program(comm: CountedComm) -> int:
        metered, made = Metered(comm), flags.reducer(name, ALLREDUCE["ring"])
        buffer = np.ones(shape.length, np.float32)
        made.reduce(metered, buffer, made.init(shape))
        return metered.bytes_sent

    shape = layout(task.params)
    sent = sim.run(program, values.ranks)[0]
    others = max(1, values.ranks - 1)
    summed = sent * values.ranks / (2 * others) / 4  # elements of a ring all-reduce
    gathered = sent / others / 8  # positions and values of an all-gather
    fractions = {"random_k": summed, "top_k": gathered}
    return [
        f"{code}:{min(1, count / shape.length):.6f}+feedback"
        for code, count in fractions.items()
    ]
