"""Trainings of byzantine.py: `synchronous` on one rank with a logical shard per worker.

The strategy, the rule, the attack and the momentum are those of
`vision.py --reduce=krum:2 --attack=alie --attackers=2`; logical shards replace ranks.
"""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any, NamedTuple

from lab.compiling import sgd
import jax
import numpy as np

from dml import sim
from dml.data.images.datasets import images
from dml.data.minibatches import take
from dml.data.poison import poisoned, with_reversed_labels
from dml.data.skew import skewed_draws, skewed_shards
from dml.evaluation.scores import evaluate
from dml.metrics.timer import Timer
from dml.models.model_problem import model_problem
from dml.models.networks.mlp import mlp
from dml.strategies.synchronous import synchronous
from dml.train import curve
from dml.types import Batch, CountedComm, Model, Params, Problem, Reducer, Step
from dml.wire.collectives import tree_allreduce
from dml.wire.comm import Metered
from dml.wire.reducers.robust.attacks import LABEL_FLIP, byzantine
from dml.wire.reducers.robust.reducer import MOMENTUM, robust
from studies.byzantine.cells import NO_ATTACK, Cell
from studies.byzantine.rules import estimator

WIDTHS = (32,)


class Sizes(NamedTuple):
    """Sizes and data of all trainings.

    Attributes:
      data: Name of the images.
      honest: Number of honest workers.
      batch: Examples of a worker in an update.
      steps: Number of updates.
      lr: Learning rate.
      momentum: Whether the workers have momentum.
    """

    data: str
    honest: int
    batch: int
    steps: int
    lr: float
    momentum: bool


class Task(NamedTuple):
    """The network, its number of classes, and the images."""

    model: Model
    classes: int
    training: Batch
    held_out: Batch


@cache  # the model is a static argument of compiled functions
def task(data: str) -> Task:
    """Return the network and the images of a set."""
    training, held_out = images(data)
    classes = 1 + int(max(training.targets.max(), held_out.targets.max()))
    shape = training.inputs.shape[1:]
    return Task(mlp(shape, classes, widths=WIDTHS), classes, training, held_out)


@cache  # all cells of a seed start at the same values
def problem(data: str, seed: int) -> Problem:
    """Return the problem, with negative draw numbers for wrong labels."""
    model, classes, training, held_out = task(data)

    def measure(params: Params) -> dict[str, Any]:
        return evaluate(model, held_out, params)

    right = model_problem(
        model,
        jax.device_get(model.init(jax.random.key(seed))),
        examples=len(training.targets),
        take=partial(take, training),
        evaluate=measure,
    )
    return with_reversed_labels(right, classes)


def minibatches(cell: Cell, sizes: Sizes) -> Iterator[np.ndarray]:
    """Yield the minibatches: part w has examples of worker w."""
    workers = sizes.honest + cell.attackers
    labels = task(sizes.data).training.targets
    own = skewed_shards(labels, workers, cell.skew, cell.seed, cell.attackers)
    batch = sizes.batch * workers
    batches = skewed_draws(own, batch, cell.seed, sizes.steps * batch)
    if cell.attack == LABEL_FLIP:
        batches = poisoned(batches, workers, cell.attackers)
    return batches


def reducer(cell: Cell, momentum: bool) -> Reducer:
    """Return the reducer of a cell: rule, momentum and attack."""
    rule, before = estimator(cell.rule, cell.attackers)
    forged = cell.attack not in (NO_ATTACK, LABEL_FLIP)
    return robust(
        rule,
        *before,
        allreduce=tree_allreduce,
        momentum=MOMENTUM if momentum else 0.0,
        byzantine=byzantine(cell.attack, cell.attackers) if forged else None,
    )


def trained(sizes: Sizes, cell: Cell, comm: CountedComm) -> list[Any]:
    """Train on any number of ranks; return the leaves of the parameters."""
    *_, last = train(sizes, cell, comm)
    return jax.tree.leaves(jax.device_get(last.params()))


def train(sizes: Sizes, cell: Cell, comm: CountedComm) -> Iterator[Step]:
    """Yield the steps of a cell's training."""
    return synchronous(
        problem(sizes.data, cell.seed),
        minibatches(cell, sizes),
        sgd(sizes.lr),
        comm=Metered(comm),
        timer=Timer(comm.Wtime),
        reducer=reducer(cell, sizes.momentum),
        shards=sizes.honest + cell.attackers,
    )


def accuracy(sizes: Sizes, cell: Cell) -> float:
    """Train on one virtual rank; return the accuracy on held-out images."""

    def program(comm: CountedComm) -> float:
        measure = problem(sizes.data, cell.seed).evaluate
        summary = curve(train(sizes, cell, comm), measure, finite=False).summary
        return float(summary["accuracy"])

    return sim.run(program, 1)[0]
