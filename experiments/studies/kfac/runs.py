"""Trainings of a multilayer perceptron by K-FAC and by first-order optimizers."""

import time
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np

from dml.data.images.datasets import images
from dml.data.minibatches import draws, take
from dml.evaluation.scores import digest, evaluate
from dml.metrics.timer import Timer
from dml.models.model_problem import model_problem
from dml.models.networks.mlp import mlp
from dml.sim.run import run
from dml.strategies.kfac.kfac import kfac
from dml.strategies.kfac.plan import make_plan
from dml.strategies.serial import serial
from dml.types import CountedComm, Problem, Reducer
from dml.update.curvature import Rule
from dml.update.dense import Optimizer, make
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.plans import curvature
from dml.wire.plans.curvature import Grid
from dml.wire.reducers.exact import exact
from dml.wire.reducers.fixed_point import order_free

SHARDS, BATCH = 8, 128
RULE = Rule(damping=0.03, curvature_every=5, inverses_every=10, limit=0.3)
TARGETS = (0.1, 0.03)  # training losses, means of WINDOW updates
WINDOW = 10


class Setting(NamedTuple):
    """An optimizer with its learning rate, and with K-FAC's damping; 0: no K-FAC."""

    optimizer: str
    rate: float
    damping: float = 0.0


# Three settings of each optimizer, from a coarse search around the best.
SETTINGS = {
    "momentum": [Setting("momentum", rate) for rate in (0.01, 0.03, 0.1)],
    "adam": [Setting("adam", rate) for rate in (1e-3, 3e-3, 1e-2)],
    "kfac": [Setting("momentum", 0.03, damping) for damping in (0.01, 0.03, 0.1)],
}


class Task(NamedTuple):
    """The network and its images.

    Attributes:
      data: Name of the images.
      widths: Numbers of units of the hidden layers.
      seed: Random seed.
    """

    data: str
    widths: tuple[int, ...]
    seed: int


@cache
def problem(task: Task) -> Problem:
    """Return the training problem."""
    training, _ = images(task.data)
    classes = 1 + int(training.targets.max())
    model = mlp(training.inputs.shape[1:], classes, task.widths)
    return model_problem(
        model,
        model.init(jax.random.key(task.seed)),
        examples=len(training.targets),
        take=partial(take, training),
    )


@cache  # the optimizer is a static argument of the compiled update
def optimizer(name: str, rate: float) -> Optimizer:
    return make(name, rate)


def batches(task: Task, updates: int) -> Any:
    """Return the indices of each minibatch."""
    return draws(problem(task).examples, BATCH, task.seed, updates * BATCH)


def with_fraction(
    task: Task, ranks: int, fraction: float, updates: int
) -> dict[str, Any]:
    """Return the row of trainings by K-FAC on virtual ranks.

    Words and seconds are those of exact sums; the hash is that of order-free sums of 8
    logical shards.

    Args:
      task: Network and images.
      ranks: Number of virtual ranks.
      fraction: Fraction of the ranks that are gradient workers of a layer.
      updates: Number of updates.
    """
    allreduce = ALLREDUCE["ring"]
    train = partial(program, task, fraction, updates)
    exactly = run(partial(train, exact(allreduce), 0), ranks)
    freely = run(partial(train, order_free(allreduce), SHARDS), ranks)
    sent, nbytes, seconds, _ = zip(*exactly, strict=True)
    hashes = {sha256 for *_, sha256 in freely}
    grid = make_plan(problem(task), np.arange(1), ranks, fraction).grid
    return {
        "table": "fraction",
        "ranks": ranks,
        "fraction": fraction,
        "words_sent": sum(sent),
        "predicted_words": predicted_words(task, grid, updates),
        "state_bytes": max(nbytes),
        "predicted_bytes": max(curvature.nbytes(grid, rank) for rank in range(ranks)),
        "update_seconds": max(seconds) / updates,
        "sha256": ",".join(sorted(hashes)),
    }


def program(
    task: Task,
    fraction: float,
    updates: int,
    reducer: Reducer,
    shards: int,
    comm: CountedComm,
) -> tuple[int, float, float, str]:
    """Train as one rank; return words sent, bytes, virtual seconds, and the hash."""
    comm = Metered(comm)
    steps = kfac(
        problem(task),
        batches(task, updates),
        optimizer("momentum", 0.03),
        comm=comm,
        timer=Timer(comm.Wtime),
        reducer=reducer,
        shards=shards,
        fraction=fraction,
        rule=RULE,
    )
    start, sent = comm.Wtime(), 0
    for last in steps:
        sent += last.words_sent
    nbytes = last.measures["curvature_bytes"]
    return sent, nbytes, comm.Wtime() - start, digest(last.params())


def predicted_words(task: Task, grid: Grid, updates: int) -> int:
    """Return the elements that all ranks send in all updates, with exact sums."""
    leaves = jax.tree.leaves(problem(task).params)
    length = 1 + sum(leaf.size for leaf in leaves)
    words = curvature.words(grid)
    return (
        updates * (2 * (grid.ranks - 1) * length + words.gradients)
        + -(-updates // RULE.curvature_every) * words.curvature
        + -(-updates // RULE.inverses_every) * words.inverses
    )


def to_target(task: Task, name: str, setting: Setting, updates: int) -> dict[str, Any]:
    """Return the row of a training on one rank: updates until each target.

    Args:
      task: Network and images.
      name: Key of SETTINGS.
      setting: The optimizer.
      updates: Largest number of updates.
    """
    losses, seconds, params = run(partial(target_program, task, setting, updates), 1)[0]
    means = np.convolve(losses, np.full(WINDOW, 1 / WINDOW), "valid")
    reached = {}
    for target in TARGETS:
        below = np.flatnonzero(means < target)
        reached[f"updates_{target:g}"] = int(below[0]) + WINDOW if len(below) else None
    model = problem(task).model
    assert model
    held_out = images(task.data)[1]
    return {
        "table": "training",
        "name": name,
        "rate": setting.rate,
        "damping": setting.damping,
        **reached,
        "loss": float(means[-1]) if np.isfinite(means[-1]) else None,
        "accuracy": float(evaluate(model, held_out, params)["accuracy"]),
        "update_seconds": seconds,
    }


def target_program(
    task: Task, setting: Setting, updates: int, comm: CountedComm
) -> tuple[np.ndarray, float, Any]:
    """Train on one rank; return losses, mean seconds of an update, and params."""
    method: Any = serial
    own: dict[str, Any] = {}
    if setting.damping:
        method = kfac
        rule = RULE._replace(damping=setting.damping)
        own = {"reducer": exact(ALLREDUCE["ring"]), "rule": rule}
    steps = method(
        problem(task),
        batches(task, updates),
        optimizer(setting.optimizer, setting.rate),
        comm=Metered(comm),
        timer=Timer(comm.Wtime),
        **own,
    )
    losses, seconds, before = [], [], time.perf_counter()
    for last in steps:
        now = time.perf_counter()
        losses.append(last.loss)
        seconds.append(now - before)
        before = now
    # the first updates compile
    mean = float(np.mean(seconds[RULE.inverses_every :]))
    return np.array(losses), mean, last.params()
