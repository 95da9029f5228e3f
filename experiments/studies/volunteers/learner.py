"""A small network that many peers train: one vector of parameters for each seat."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from dml.data.images.digits import digits
from dml.models.networks.mlp import mlp
from dml.types import Batch
from dml.types.ranges import SEEDS

WIDTHS = (32,)
CHUNK = 250  # peers in a compiled call; a larger chunk exceeds the caches


class Learner(NamedTuple):
    """Functions of packed parameters.

    Attributes:
      start: Start value.
      local: Function (rows, seats, round) that applies local updates to the rows of
        these seats, in place.
      update: Function (vector, number, peers, factor of the rate) -> vector after an
        update by the mean gradient of all peers.
      accuracy: Function of rows -> mean accuracy on held-out images.
    """

    start: np.ndarray
    local: Callable[[np.ndarray, np.ndarray, int], None]
    update: Callable[[Any, int, int, float], Any]
    accuracy: Callable[[Any], float]


def learner(seed: int, steps: int, batch: int, lr: float) -> Learner:
    """Return the functions of a network of 2,410 parameters for handwritten digits.

    Args:
      seed: Random seed of the start value and of all minibatches.
      steps: Number of local updates.
      batch: Number of examples of a gradient evaluation.
      lr: Learning rate of SGD.
    """
    training, held_out = (Batch(*map(jnp.asarray, part)) for part in digits())
    model = mlp(training.inputs.shape[1:], 10, widths=WIDTHS)
    start, unravel = ravel_pytree(model.init(jax.random.key(seed)))
    key, count = jax.random.key((seed + 1) % SEEDS), len(training.targets)

    def loss(vector: jax.Array, indices: jax.Array) -> jax.Array:
        chosen = Batch(training.inputs[indices], training.targets[indices])
        mean: jax.Array = model.loss(unravel(vector), chosen)
        return mean

    def descend(vector: jax.Array, draw: jax.Array) -> tuple[jax.Array, None]:
        indices = jax.random.randint(draw, (batch,), 0, count)
        return vector - lr * jax.grad(loss)(vector, indices), None

    def local(vector: jax.Array, seat: jax.Array, t: jax.Array) -> jax.Array:
        seat_key = jax.random.fold_in(jax.random.fold_in(key, t), seat)
        return jax.lax.scan(descend, vector, jax.random.split(seat_key, steps))[0]

    def weighted(vector: jax.Array, weights: jax.Array) -> jax.Array:
        return weights @ jax.vmap(lambda i: loss(vector, i))(jnp.arange(count)[:, None])

    chunk = jax.jit(jax.vmap(local, (0, 0, None)))
    gradient = jax.jit(jax.grad(weighted))
    accuracy = jax.jit(
        jax.vmap(lambda vector: model.metrics(unravel(vector), held_out)["accuracy"])
    )

    def update(vector: Any, number: int, peers: int, factor: float) -> Any:
        # the weight of an example in the mean is the number of its draws
        generator = np.random.default_rng((seed, number))
        counts = generator.multinomial(peers * batch, np.full(count, 1 / count))
        weights = (counts / counts.sum()).astype(np.float32)
        return vector - factor * lr * gradient(vector, weights)

    return Learner(
        np.asarray(start),
        lambda rows, seats, t: by_chunks(chunk, rows, seats, t),
        update,
        lambda rows: float(accuracy(np.atleast_2d(rows)).mean()),
    )


def by_chunks(
    compiled: Callable[..., jax.Array], rows: np.ndarray, seats: np.ndarray, t: int
) -> None:
    """Apply local updates to the rows of seats, in place.

    Args:
      compiled: Function (rows, seats, round) -> rows, for CHUNK seats.
      rows: Vector of each seat.
      seats: Seats that compute.
      t: Number of the round.
    """
    for first in range(0, len(seats), CHUNK):
        block = seats[first : first + CHUNK]
        padded = np.resize(block, CHUNK)  # a constant shape needs one compilation
        rows[block] = np.asarray(compiled(rows[padded], padded, t))[: len(block)]
