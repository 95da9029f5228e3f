"""Trainings of byzantine.py: `synchronous` on one rank with a logical shard per worker.

The strategy, the rule, the attack and the momentum are those of
`vision.py --reduce=krum:2 --attack=alie --attackers=2`; logical shards replace ranks.
"""

from functools import cache
from typing import NamedTuple

from lab.compiling import sgd
import numpy as np

from dml.case import Case, measure
from dml.data.poison import poisoned, with_reversed_labels
from dml.data.skew import skewed_draws, skewed_shards
from dml.problems import count_classes, given, network
from dml.types import Problem, Reducer
from dml.wire.collectives import tree_allreduce
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


def labels(data: str) -> np.ndarray:
    """Return the labels of the training examples."""
    targets: np.ndarray = network("mlp", data, *WIDTHS).training.targets
    return targets


@cache  # all cells of a seed start at the same values
def problem(data: str, seed: int) -> Problem:
    """Return the problem, with negative draw numbers for wrong labels."""
    task = network("mlp", data, *WIDTHS)
    return with_reversed_labels(task.problem(seed), count_classes(task[1:]))


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


def case(sizes: Sizes, cell: Cell) -> Case:
    """Return the training of a cell on one rank, which has the shards of all workers.

    Part w of a minibatch has examples of worker w.
    """
    workers = sizes.honest + cell.attackers
    own = skewed_shards(
        labels(sizes.data), workers, cell.skew, cell.seed, cell.attackers
    )
    batch = sizes.batch * workers
    batches = skewed_draws(own, batch, cell.seed, sizes.steps * batch)
    if cell.attack == LABEL_FLIP:
        batches = poisoned(batches, workers, cell.attackers)
    options = {"reducer": reducer(cell, sizes.momentum), "shards": workers}
    task = problem(sizes.data, cell.seed)
    return Case(given(task, list(batches), sgd(sizes.lr)), "synchronous", options)


def accuracy(sizes: Sizes, cell: Cell) -> float:
    """Train; return the accuracy on held-out images."""
    (measured,) = measure(case(sizes, cell))
    return float(measured.evaluation["accuracy"])
