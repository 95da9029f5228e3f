"""Trainings of large_batch.py: all of them see the same number of images."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from dml.data.images.datasets import images
from dml.data.minibatches import draws, take
from dml.metrics.noise import Noise
from dml.metrics.timer import Timer
from dml.models.cnn import cnn
from dml.models.mlp import mlp
from dml.models.network import network
from dml.models.resnet import resnet
from dml.strategies.scan import scan
from dml.train import curve
from dml.types import BadInput, Batch, Model, Params
from dml.update.dense import make, statistics
from dml.wire.comm.mpi import world

SNAPSHOTS = 256  # of a training, at most
MODELS: dict[str, Callable[[tuple[int, ...], int], Model]] = {
    "mlp": partial(mlp, widths=(64, 64, 64)),
    "cnn": partial(cnn, width=8),
    "resnet": partial(resnet, depth=8),
}
momentum = partial(make, "momentum")


class Plan(NamedTuple):
    """The model and images of all trainings, and the number of images of each."""

    model: Model
    training: Batch
    held_out: Batch
    base: int  # images of a worker
    largest: int  # workers
    snapshots: int
    every: int  # of the largest minibatches, between two snapshots
    parameters: int  # of the model
    measure: Partial  # params -> accuracy on held-out images

    @property
    def count(self) -> int:
        return len(self.training.targets)

    @property
    def between(self) -> int:
        """Return the images between two snapshots."""
        return self.every * self.largest * self.base

    def steps(self, factor: int) -> int:
        return self.snapshots * self.between // (factor * self.base)

    def batches(self, factor: int, seed: int) -> Iterator[np.ndarray]:
        """Yield the images of each update of so many workers."""
        total = self.snapshots * self.between
        return draws(self.count, factor * self.base, seed, total)


class Ran(NamedTuple):
    """One training."""

    seconds: float
    losses: np.ndarray  # a mean for each snapshot
    accuracies: np.ndarray  # on held-out images, of each snapshot
    snapshots: Sequence[Params] = ()


def plan(model: str, data: str, base: int, factors: Sequence[int], epochs: int) -> Plan:
    """Plan trainings that all see the same number of images, in whole minibatches."""
    training, held_out = images(data)
    largest = max(factors)
    whole = epochs * len(training.targets) // (base * largest)
    if not whole:
        raise BadInput(
            f"expected minibatches of at most {epochs * len(training.targets)} images, "
            f"as --epochs={epochs} sees, got {base} x {largest}; pass more --epochs"
        )
    every = -(-whole // SNAPSHOTS)
    made = MODELS[model](training.inputs.shape[1:], int(training.targets.max()) + 1)
    leaves = jax.tree.leaves(made.init(jax.random.key(0)))
    sizes = whole // every, every, sum(leaf.size for leaf in leaves)
    measure = accuracy(made, held_out)
    return Plan(made, training, held_out, base, largest, *sizes, measure)


def accuracy(model: Model, held_out: Batch) -> Partial:
    """Return a function of params: the accuracy on these images."""

    def measured(held_out: Batch, params: Params) -> dict[str, Any]:
        return {"accuracy": model.metrics(params, held_out)["accuracy"]}

    return Partial(measured, jax.device_put(held_out))


def trained(
    plan: Plan, factor: int, seed: int, rates: np.ndarray, keep: bool = False
) -> Ran:
    """Train by so many workers; keep: whether the result has the snapshots."""
    problem = network(
        plan.model,
        plan.model.init(jax.random.key(seed)),
        examples=plan.count,
        take=partial(take, plan.training),
    )
    every = plan.steps(factor) // plan.snapshots
    steps = scan(
        problem,
        plan.batches(factor, seed),
        momentum,
        comm=world(),
        timer=Timer(),
        every=every,
        workers=factor,
        rates=rates,
        measure=plan.measure,
    )
    # trainings that diverge are a result, too
    rows, summary = curve(
        steps, lambda params: {"params": params}, every if keep else 0, finite=False
    )
    return Ran(
        summary["seconds"],
        np.array([row["loss"] for row in rows], np.float32),
        np.array([row["accuracy"] for row in rows], np.float32),
        [row["params"] for row in rows] if keep else (),
    )


def noise_scales(plan: Plan, snapshots: Sequence[Params], seed: int) -> list[float]:
    """Return the gradient noise scale up to each snapshot."""
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *snapshots)
    first = np.stack(list(plan.batches(plan.largest, seed))[:: plan.every]) % plan.count
    numbers = first.astype(np.int32).reshape(len(first), plan.largest, plan.base)
    squares = _squares(plan.model.loss, stacked, numbers, plan.training)
    sizes, seen = (plan.base, plan.base * plan.largest), Noise()
    return [seen.add(*both, *sizes) for both in np.asarray(squares).T.tolist()]


@partial(jax.jit, static_argnums=0)
def _squares(loss: Any, snapshots: Params, numbers: Any, data: Batch) -> Any:
    """Return squared norms: the mean of workers' gradients, and of their mean."""

    def one(arguments: Any) -> Any:
        params, at = arguments
        part = jax.tree.map(lambda leaf: leaf[at], data)
        grads = jax.vmap(jax.grad(loss), (None, 0))(params, part)
        weights = jax.tree.map(lambda no: not no, statistics(grads))
        kept = jax.tree.map(lambda leaf, is_: leaf * is_, grads, weights)
        small = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(kept)) / len(at)
        large = sum(jnp.sum(leaf.mean(axis=0) ** 2) for leaf in jax.tree.leaves(kept))
        return small, large

    return jax.lax.map(one, (snapshots, numbers))
