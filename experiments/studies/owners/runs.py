"""Trainings of a small GPT with replicated or owned updates, on virtual ranks."""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from lab import options
from lab.claims import grouped, matching
import jax
import numpy as np

from dml.case import Case, measure
from dml.metrics.alternate import alternate
from dml.models.layers.blocks import Shape
from dml.problems import given, texts
from dml.runs.results import Run
from dml.sim.run import run
from dml.strategies import load
from dml.strategies.owned_leaves import OwnedLeaves
from dml.types import CountedComm, Problem
from dml.update import muon
from dml.update.dense import Optimizer, make
from dml.wire.collectives import ALLREDUCE
from dml.wire.plans.owners import Owners, owners, words
from dml.wire.reducers.exact import exact
from dml.wire.reducers.fixed_point import order_free

SHARDS, BATCH, CLIP, RATE, DECAY = 8, 16, 1.0, 2e-3, 0.1
REDUCERS = {"exact": exact, "order_free": order_free}


class OwnersPlan(NamedTuple):
    """The model, the optimizer and the length of a training.

    Attributes:
      shape: Sizes of the GPT.
      optimizer: Key of `update.dense.OPTIMIZERS`.
      steps: Number of updates.
      seed: Random seed.
    """

    shape: Shape
    optimizer: str
    steps: int
    seed: int


@cache
def problem(shape: Shape, seed: int) -> Problem:
    """Return a GPT and random texts, in which each token depends on the previous."""
    rng = np.random.default_rng(seed)
    following = rng.permutation(shape.vocabulary)
    tokens = np.empty((256, shape.length + 1), np.int32)
    tokens[:, 0] = rng.integers(0, shape.vocabulary, len(tokens))
    for position in range(shape.length):
        noise = rng.integers(0, shape.vocabulary, len(tokens))
        is_noise = rng.random(len(tokens)) < 0.1
        tokens[:, position + 1] = np.where(
            is_noise, noise, following[tokens[:, position]]
        )
    return texts(shape, tokens).problem(seed)


@cache  # the optimizer is a static argument of the compiled update
def optimizer(plan: OwnersPlan, clip: float) -> Optimizer:
    """Return the optimizer; strategies that clip themselves pass an infinite clip."""
    return make(plan.optimizer, RATE, clip=clip, decay=DECAY, outputs=outputs_of(plan))


def case(plan: OwnersPlan, strategy: str, reducer: str) -> Case:
    """Return a training by "synchronous" or "owned", with a key of REDUCERS.

    order_free sums have 8 logical shards on any number of ranks.
    """
    task, rng = problem(plan.shape, plan.seed), np.random.default_rng(plan.seed)
    batches = [rng.integers(0, task.examples, BATCH) for _ in range(plan.steps)]
    own: dict[str, Any] = {"reducer": REDUCERS[reducer](ALLREDUCE["star"])}
    if reducer == "order_free":
        own["shards"] = SHARDS
    clips = options.takes(load(strategy), ["clip"])
    if clips:
        own |= {"clip": CLIP, "costs": costs(plan)}
    update = optimizer(plan, np.inf if clips else CLIP)
    return Case(given(task, batches, update), strategy, own)


def train(plan: OwnersPlan, strategy: str, ranks: int, reducer: str) -> dict[str, Any]:
    """Return the row of a training on virtual ranks; see `case`."""
    measured = measure(case(plan, strategy, reducer)._replace(ranks=ranks))
    predicted = words(owners_of(plan, ranks))
    return {
        "table": "training",
        "optimizer": plan.optimizer,
        "strategy": strategy,
        "reducer": reducer,
        "ranks": ranks,
        "loss": measured[0].rows[-1]["loss"],
        "words_sent": sum(rank.words for rank in measured),
        "predicted": sum(predicted) * plan.steps if strategy == "owned" else None,
        "clip_words": (ranks - 1) * leaves_of(plan) * plan.steps,
        "state_bytes": max(rank.state_bytes for rank in measured),
        "sha256": measured[0].sha256,
    }


def costs(plan: OwnersPlan) -> Any:
    """Return params -> costs of updates, by which owners are balanced; None: sizes."""
    if plan.optimizer != "muon":
        return None
    return partial(muon.costs, outputs_of(plan))


def outputs_of(plan: OwnersPlan) -> Sequence[str]:
    """Return the names of the params of the output layer."""
    model = problem(plan.shape, plan.seed).model
    assert model
    return model.layers[-1].names


def leaves_of(plan: OwnersPlan) -> int:
    return len(jax.tree.leaves(problem(plan.shape, plan.seed).params))


def owners_of(plan: OwnersPlan, ranks: int) -> Owners:
    """Return the owners of the GPT's leaves, with one scalar for the loss."""
    params, rule = problem(plan.shape, plan.seed).params, costs(plan)
    shapes = [leaf.shape for leaf in jax.tree.leaves(params)]
    return owners(shapes, ranks, rule and rule(params), scalars=1)


def update_seconds(plan: OwnersPlan, ranks: int, repeats: int) -> dict[str, Any]:
    """Return the row with the seconds of an update on the slowest rank.

    This process updates the leaves of one rank after another, without messages.

    Args:
      plan: Model, optimizer and number of updates.
      ranks: Number of ranks.
      repeats: Number of timings, of which the least is taken.
    """
    seconds = [
        run(partial(time_update, plan, ranks, rank, repeats), 1)[0]
        for rank in range(ranks)
    ]
    return {
        "table": "update",
        "optimizer": plan.optimizer,
        "ranks": ranks,
        "seconds": max(seconds),
        "balance": float(np.mean(seconds)) / max(seconds),
    }


def time_update(
    plan: OwnersPlan, ranks: int, rank: int, repeats: int, comm: CountedComm
) -> float:
    """Return the least seconds of the update of one rank's leaves."""
    params, update = problem(plan.shape, plan.seed).params, optimizer(plan, np.inf)
    leaves = OwnedLeaves(params, update, owners_of(plan, ranks), rank, None)
    params = leaves.put(params)
    values = np.full(leaves.layout.length, 1e-3, np.float32)
    update_leaves = partial(leaves.update, comm, params, values, 0.0)
    return min(alternate({rank: update_leaves}, repeats)[rank])


def conclude(run: Run) -> str:
    """Return the equality of owned trainings over ranks, their state, and the times."""
    tables = grouped(run.rows, "table")
    owned = matching(tables["training"], strategy="owned")
    groups = grouped(owned, "reducer", "optimizer")
    ranks = sorted({row["ranks"] for row in owned})
    texts = []
    for reducer, rows in grouped(owned, "reducer").items():
        kinds = grouped(rows, "optimizer").values()
        equal = sum(len({row["sha256"] for row in kind}) == 1 for kind in kinds)
        texts.append(f"{equal} of {len(kinds)} by {reducer} sums")
    texts = [
        f"Optimizers with equal bits on {', '.join(map(str, ranks))} ranks: "
        f"{', '.join(texts)}"
    ]
    first, *_ = groups.values()
    state = [row["state_bytes"] for row in (first[0], first[-1])]
    texts.append(
        f"an owner of {ranks[-1]} stores {state[1] / state[0]:.0%} of the state"
    )
    for name, rows in grouped(tables.get("update", []), "optimizer").items():
        times = [1e3 * row["seconds"] for row in (rows[0], rows[-1])]
        texts.append(
            f"an update by {name} takes {times[0]:.3g} ms on {rows[0]['ranks']} rank "
            f"and {times[1]:.3g} ms on {rows[-1]['ranks']}"
        )
    return "; ".join(texts) + "."
