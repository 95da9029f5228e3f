"""Trainings of large_batch.py, all on the same number of images."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from dml import extend
from dml.data.images.datasets import images
from dml.data.minibatches import draws
from dml.metrics.noise import Noise
from dml.metrics.timer import Timer
from dml.models.networks.cnn import cnn
from dml.models.networks.mlp import mlp
from dml.models.networks.resnet import resnet
from dml.strategies.scan import scan
from dml.task import Task
from dml.train import curve
from dml.types import BadInput, Batch, Model, Params
from dml.update.dense import make, statistics
from dml.wire.comm.mpi import world

SNAPSHOTS = 256  # largest number of snapshots of a training
MODELS: dict[str, Callable[[tuple[int, ...], int], Model]] = {
    "mlp": partial(mlp, widths=(64, 64, 64)),
    "cnn": partial(cnn, width=8),
    "resnet": partial(resnet, depth=8),
}
momentum = partial(make, "momentum")


class LargeBatchPlan(NamedTuple):
    """The model, images and sizes of all trainings.

    model: the network.
    training, held_out: images.
    base: number of images of a worker in a minibatch.
    largest: largest number of workers.
    snapshots: number of evaluations of a training.
    every: number of minibatches of `largest` workers between two snapshots.
    parameters: number of parameters of the model.
    measure: params -> accuracy on held-out images.
    """

    model: Model
    training: Batch
    held_out: Batch
    base: int
    largest: int
    snapshots: int
    every: int
    parameters: int
    measure: Partial

    @property
    def count(self) -> int:
        return len(self.training.targets)

    @property
    def between(self) -> int:
        """Return the number of images between two snapshots."""
        return self.every * self.largest * self.base

    def steps(self, factor: int) -> int:
        return self.snapshots * self.between // (factor * self.base)

    def batches(self, factor: int, seed: int) -> Iterator[np.ndarray]:
        """Yield the image indices of each update of `factor` workers."""
        total = self.snapshots * self.between
        return draws(self.count, factor * self.base, seed, total)


class Result(NamedTuple):
    """The result of one training.

    seconds: time of all steps.
    losses: mean training loss up to each snapshot.
    accuracies: accuracy on held-out images at each snapshot.
    snapshots: params, if kept.
    """

    seconds: float
    losses: np.ndarray
    accuracies: np.ndarray
    snapshots: Sequence[Params] = ()


def plan(
    model: str, data: str, base: int, factors: Sequence[int], epochs: int
) -> LargeBatchPlan:
    """Plan trainings on the same number of images, in full minibatches.

    Args:
        model: key of MODELS, or FILE.py:NAME.
        data: name of the images.
        base: number of images of a worker in a minibatch.
        factors: numbers of workers.
        epochs: epochs of each training.
    """
    training, held_out = images(data)
    largest = max(factors)
    minibatches = epochs * len(training.targets) // (base * largest)
    if not minibatches:
        raise BadInput(
            f"expected minibatches of at most {epochs * len(training.targets)} images, "
            f"all of --epochs={epochs}, got {base} x {largest}; pass more --epochs"
        )
    every = -(-minibatches // SNAPSHOTS)
    make_model = extend.find(model, MODELS, extend.MODELS)
    shape, classes = training.inputs.shape[1:], int(training.targets.max()) + 1
    network_model = extend.make(model, make_model, Model, shape, classes)
    leaves = jax.tree.leaves(network_model.init(jax.random.key(0)))
    sizes = minibatches // every, every, sum(leaf.size for leaf in leaves)
    measure = accuracy(network_model, held_out)
    return LargeBatchPlan(
        network_model, training, held_out, base, largest, *sizes, measure
    )


def accuracy(model: Model, held_out: Batch) -> Partial:
    """Return a function of params that returns the accuracy on held-out images."""

    def measured(held_out: Batch, params: Params) -> dict[str, Any]:
        return {"accuracy": model.metrics(params, held_out)["accuracy"]}

    return Partial(measured, jax.device_put(held_out))


def train(
    plan: LargeBatchPlan, factor: int, seed: int, rates: np.ndarray, keep: bool = False
) -> Result:
    """Train with `factor` workers.

    Args:
        plan: plan of all trainings.
        factor: number of workers.
        seed: random seed.
        rates: learning rate of each step.
        keep: whether to keep the params of all snapshots.
    """
    problem = Task(plan.model, plan.training, plan.held_out).problem(seed)
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
    # a training that diverges is a result, too
    rows, summary = curve(
        steps, lambda params: {"params": params}, every if keep else 0, finite=False
    )
    return Result(
        summary["seconds"],
        np.array([row["loss"] for row in rows], np.float32),
        np.array([row["accuracy"] for row in rows], np.float32),
        [row["params"] for row in rows] if keep else (),
    )


def noise_scales(
    plan: LargeBatchPlan, snapshots: Sequence[Params], seed: int
) -> list[float]:
    """Return the gradient noise scale up to each snapshot."""
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *snapshots)
    first_indices = (
        np.stack(list(plan.batches(plan.largest, seed))[:: plan.every]) % plan.count
    )
    indices = first_indices.astype(np.int32).reshape(
        len(first_indices), plan.largest, plan.base
    )
    squares = _squares(plan.model.loss, stacked, indices, plan.training)
    sizes, noise = (plan.base, plan.base * plan.largest), Noise()
    return [noise.add(*pair, *sizes) for pair in np.asarray(squares).T.tolist()]


@partial(jax.jit, static_argnums=0)
def _squares(loss: Any, snapshots: Params, indices: Any, data: Batch) -> Any:
    """Return two arrays with an element per snapshot.

    The elements are the mean of the squared norms of the workers' gradients, and the
    squared norm of the mean of these gradients.
    """

    def squared_norms(arguments: Any) -> Any:
        params, indices = arguments
        part = jax.tree.map(lambda leaf: leaf[indices], data)
        grads = jax.vmap(jax.grad(loss), (None, 0))(params, part)
        weights = jax.tree.map(lambda is_statistic: not is_statistic, statistics(grads))
        kept = jax.tree.map(lambda leaf, is_weight: leaf * is_weight, grads, weights)
        small = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(kept)) / len(indices)
        large = sum(jnp.sum(leaf.mean(axis=0) ** 2) for leaf in jax.tree.leaves(kept))
        return small, large

    return jax.lax.map(squared_norms, (snapshots, indices))
