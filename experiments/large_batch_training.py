"""Whole trainings as one program: examples' numbers and rates in, params by time out.

    numbers SxRxKxN     K workers of N images make an update, R updates a snapshot

What K workers do is written as one: the mean of their losses, each over its own images
(so batch statistics are a worker's own, Goyal 2017, section 3), has the gradient that
an all-reduce would give them all.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dml.data.images import images
from dml.data.minibatches import draws
from dml.metrics.noise import Noise
from dml.models.cnn import cnn
from dml.models.mlp import mlp
from dml.models.resnet import resnet
from dml.types import BadInput, Batch, Model, Params
from dml.update.dense import make, statistics

SNAPSHOTS = 256  # of a training, at most
MODELS: dict[str, Callable[[tuple[int, ...], int], Model]] = {
    "mlp": partial(mlp, widths=(64, 64, 64)),
    "cnn": partial(cnn, width=8),
    "resnet": partial(resnet, depth=8),
}


class Plan(NamedTuple):
    """What all trainings share: a model, its images, and how many are seen in all."""

    model: Model
    training: Batch
    held_out: Batch
    base: int  # images of a worker
    largest: int  # workers
    snapshots: int
    every: int  # of the largest minibatches, between two snapshots
    parameters: int  # of the model

    @property
    def count(self) -> int:
        return len(self.training.targets)

    @property
    def between(self) -> int:
        """Return the images between two snapshots."""
        return self.every * self.largest * self.base

    def steps(self, factor: int) -> int:
        return self.snapshots * self.between // (factor * self.base)

    def numbers(self, factor: int, seed: int) -> np.ndarray:
        """Return the images of every worker of every update between snapshots."""
        total = self.snapshots * self.between
        drawn = list(draws(self.count, factor * self.base, seed, total))
        shape = (self.snapshots, -1, factor, self.base)
        return (np.stack(drawn) % self.count).astype(np.int32).reshape(shape)


class Ran(NamedTuple):
    """One training."""

    seconds: float
    losses: np.ndarray  # a mean for each snapshot
    accuracies: np.ndarray  # on held-out images, likewise


Program = Callable[[int, np.ndarray], tuple[Ran, Params]]


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
    return Plan(made, training, held_out, base, largest, *sizes)


def programmed(plan: Plan, factor: int) -> Program:
    """Compile the training by so many workers; it then takes a seed and the rates.

    It returns what it measured, and params of all snapshots.
    """
    data, held_out = jax.device_put((plan.training, plan.held_out))

    def given(seed: int, rates: np.ndarray) -> tuple[Any, ...]:
        params = plan.model.init(jax.random.key(seed))
        return jax.device_put((params, plan.numbers(factor, seed), rates)) + (data,)

    flat = np.zeros(plan.steps(factor), np.float32)
    program = _training.lower(plan.model.loss, *given(0, flat)).compile()

    def run(seed: int, rates: np.ndarray) -> tuple[Ran, Params]:
        mine = given(seed, rates)
        start = time.perf_counter()
        snapshots, losses = jax.block_until_ready(program(*mine))
        seconds = time.perf_counter() - start
        found = _accuracies(plan.model.metrics, snapshots, held_out)
        return Ran(seconds, np.asarray(losses), np.asarray(found)), snapshots

    return run


def noise_scales(plan: Plan, snapshots: Params, seed: int) -> list[float]:
    """Return the gradient noise scale up to each snapshot."""
    numbers = plan.numbers(plan.largest, seed)[:, 0]
    squares = _squares(plan.model.loss, snapshots, numbers, plan.training)
    sizes, seen = (plan.base, plan.base * plan.largest), Noise()
    return [seen.add(*both, *sizes) for both in np.asarray(squares).T.tolist()]


@partial(jax.jit, static_argnums=0)
def _training(
    loss: Any, params: Params, numbers: Any, rates: Any, data: Batch
) -> tuple[Params, Any]:
    optimizer = make("momentum", lambda count: rates[count])

    def mean(params: Params, images: Batch) -> Any:
        return jax.vmap(loss, (None, 0))(params, images).mean()

    def step(carry: Any, at: Any) -> Any:
        params, state = carry
        part = jax.tree.map(lambda leaf: leaf[at], data)
        value, grads = jax.value_and_grad(mean)(params, part)
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    def some(carry: Any, at: Any) -> Any:
        carry, values = jax.lax.scan(step, carry, at)
        return carry, (carry[0], values.mean())

    return jax.lax.scan(some, (params, optimizer.init(params)), numbers)[1]


@partial(jax.jit, static_argnums=0)
def _accuracies(metrics: Any, snapshots: Params, held_out: Batch) -> Any:
    return jax.lax.map(lambda one: metrics(one, held_out)["accuracy"], snapshots)


@partial(jax.jit, static_argnums=0)
def _squares(loss: Any, snapshots: Params, numbers: Any, data: Batch) -> Any:
    """Return the squared norms of workers' gradients, their mean, and of all."""

    def one(given: Any) -> Any:
        params, at = given
        part = jax.tree.map(lambda leaf: leaf[at], data)
        grads = jax.vmap(jax.grad(loss), (None, 0))(params, part)
        weights = jax.tree.map(lambda no: not no, statistics(grads))
        kept = jax.tree.map(lambda leaf, is_: leaf * is_, grads, weights)
        small = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(kept)) / len(at)
        large = sum(jnp.sum(leaf.mean(axis=0) ** 2) for leaf in jax.tree.leaves(kept))
        return small, large

    return jax.lax.map(one, (snapshots, numbers))
