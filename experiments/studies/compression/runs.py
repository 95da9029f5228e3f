"""Trainings with compressed gradients on virtual ranks, and times of the codes."""

import statistics
import time
from collections.abc import Mapping
from functools import cache
from itertools import islice
from typing import Any

from lab import flags
import numpy as np

from dml import sim
from dml.data.images.digits import CLASSES, digits
from dml.metrics.timer import Timer
from dml.models.networks.mlp import mlp
from dml.strategies.synchronous import synchronous
from dml.train import Curve, curve
from dml.types import BadInput, CountedComm, Params, Problem
from dml.update.dense import make
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.comm.buffers import layout
from studies.matrix import problems as matrix
from studies.matrix.problems import Entry, random_minibatches

WIDTHS = (128, 128)


def wide_perceptron() -> Problem:
    """Return a network of 26,122 parameters that classifies the digits."""
    training, _ = digits()
    return matrix.classifier(mlp(training.inputs.shape[1:], CLASSES, widths=WIDTHS))


WIDE = {"digits": Entry(wide_perceptron, 64, None)}
PROBLEMS: Mapping[str, Entry] = WIDE | dict(matrix.PROBLEMS)


@cache
def find_problem(name: str) -> Problem:
    """Return a problem with a pytree of parameters; raise BadInput for a table."""
    entry = WIDE[name] if name in WIDE else matrix.find_problem(name)
    task = entry.make()
    if isinstance(task.params, np.ndarray):
        raise BadInput(
            f"expected a problem with a pytree of parameters, got --problem={name}, "
            "which has rows; pass --problem=digits"
        )
    return task


def train(task: Problem, name: str, values: flags.FlagValues) -> Curve:
    """Train with a reducer on virtual ranks; return the curve of rank 0."""

    def program(comm: CountedComm) -> Curve:
        order = random_minibatches(task, values.batch, values.seed)
        steps = synchronous(
            task,
            islice(order, values.steps),
            make("momentum", values.lr),
            comm=Metered(comm),
            timer=Timer(comm.Wtime),
            reducer=flags.reducer(name, ALLREDUCE["ring"]),
        )
        evaluate = no_measures if comm.rank else task.evaluate
        return curve(steps, evaluate, finite=False)

    trained: Curve = sim.run(program, values.ranks)[0]
    return trained


def no_measures(params: Params) -> dict[str, Any]:
    return {}


def reduction_seconds(task: Problem, name: str, values: flags.FlagValues) -> float:
    """Return the median seconds of a reduction on virtual ranks, per rank."""
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
                times.append(time.perf_counter())
            state = made.reduce(comm, buffer, state)
        comm.Barrier()
        if comm.rank == 0:
            times.append(time.perf_counter())

    times: list[float] = []
    sim.run(program, values.ranks)
    return statistics.median(np.diff(times)[1:]) / values.ranks
