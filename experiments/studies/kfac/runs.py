"""Trainings of a multilayer perceptron by K-FAC and by first-order optimizers."""

from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np

from dml.case import Case, measure
from dml.data.minibatches import draws
from dml.problems import given
from dml.strategies.kfac.plan import make_plan
from dml.types import Problem
from dml.update.curvature import CurvatureRule
from dml.update.dense import Optimizer, make
from dml.wire.collectives import ALLREDUCE
from dml.wire.plans import curvature
from dml.wire.plans.curvature import Grid
from dml.wire.reducers.exact import exact
from dml.wire.reducers.fixed_point import order_free

SHARDS, BATCH = 8, 128
RULE = CurvatureRule(damping=0.03, curvature_every=5, inverses_every=10, limit=0.3)
TARGETS = (0.1, 0.03)  # training losses, means of WINDOW updates
WINDOW = 10
RING = ALLREDUCE["ring"]


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


@cache  # the optimizer is a static argument of the compiled update
def optimizer(name: str, rate: float) -> Optimizer:
    return make(name, rate)


def case(task: Problem, setting: Setting, updates: int, seed: int, **own: Any) -> Case:
    """Return a training on one rank, by K-FAC if the setting has a damping."""
    batches = list(draws(task.examples, BATCH, seed, updates * BATCH))
    entry = given(task, batches, optimizer(setting.optimizer, setting.rate))
    if not setting.damping:
        return Case(entry, "serial")
    rule = RULE._replace(damping=setting.damping)
    return Case(entry, "kfac", {"reducer": exact(RING), "rule": rule, **own})


def with_fraction(
    task: Problem, ranks: int, fraction: float, updates: int, seed: int
) -> dict[str, Any]:
    """Return the row of trainings by K-FAC on virtual ranks.

    Words and seconds are those of exact sums; the hash is that of order-free sums of 8
    logical shards.

    Args:
      task: The network and its images.
      ranks: Number of virtual ranks.
      fraction: Fraction of the ranks that are gradient workers of a layer.
      updates: Number of updates.
      seed: Random seed of the minibatches.
    """
    setting = Setting("momentum", 0.03, RULE.damping)
    exactly, freely = (
        measure(
            case(task, setting, updates, seed, fraction=fraction, **own)._replace(
                ranks=ranks
            )
        )
        for own in ({}, {"reducer": order_free(RING), "shards": SHARDS})
    )
    grid = make_plan(task, np.arange(1), ranks, fraction).grid
    return {
        "table": "fraction",
        "ranks": ranks,
        "fraction": fraction,
        "words_sent": sum(rank.words for rank in exactly),
        "predicted_words": predicted_words(task, grid, updates),
        "state_bytes": max(rank.rows[-1]["curvature_bytes"] for rank in exactly),
        "predicted_bytes": max(curvature.nbytes(grid, rank) for rank in range(ranks)),
        "update_seconds": max(rank.seconds for rank in exactly) / updates,
        "sha256": ",".join(sorted({rank.sha256 for rank in freely})),
    }


def predicted_words(task: Problem, grid: Grid, updates: int) -> int:
    """Return the elements that all ranks send in all updates, with exact sums."""
    leaves = jax.tree.leaves(task.params)
    length = 1 + sum(leaf.size for leaf in leaves)
    words = curvature.words(grid)
    return (
        updates * (2 * (grid.ranks - 1) * length + words.gradients)
        + -(-updates // RULE.curvature_every) * words.curvature
        + -(-updates // RULE.inverses_every) * words.inverses
    )


def to_target(name: str, setting: Setting, training: Case) -> dict[str, Any]:
    """Return the row of a training on one rank: updates until each target.

    Args:
      name: Key of SETTINGS.
      setting: The optimizer.
      training: The training.
    """
    (trained,) = measure(training)
    losses = [row["loss"] for row in trained.rows]
    means = np.convolve(losses, np.full(WINDOW, 1 / WINDOW), "valid")
    reached = {}
    for target in TARGETS:
        below = np.flatnonzero(means < target)
        reached[f"updates_{target:g}"] = int(below[0]) + WINDOW if len(below) else None
    seconds = [row["real_seconds"] for row in trained.rows]
    return {
        "table": "training",
        "name": name,
        "rate": setting.rate,
        "damping": setting.damping,
        **reached,
        "loss": float(means[-1]) if np.isfinite(means[-1]) else None,
        "accuracy": float(trained.evaluation["accuracy"]),
        # the first updates compile
        "update_seconds": float(np.mean(seconds[RULE.inverses_every :])),
    }
