"""A small network that many peers train at once: vectors of parameters by seat."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from dml.data.images.digits import digits
from dml.models.networks.mlp import mlp
from dml.types import Batch

WIDTHS = (32,)
CHUNK = 250  # peers of a call; more do not fit in the caches


class Learner(NamedTuple):
    """Functions of packed parameters.

    Attributes:
      start: Start value.
      local: (rows, seats, round) -> local updates of these seats, in place.
      update: (vector, number, peers, factor of the rate) -> vector after an update by
        the mean gradient of all peers.
      accuracy: rows -> mean accuracy on held-out images.
    """

    start: np.ndarray
    local: Callable[[np.ndarray, np.ndarray, int], None]
    update: Callable[[Any, int, int, float], Any]
    accuracy: Callable[[Any], float]


def learner(seed: int, steps: int, batch: int, lr: float) -> Learner:
    """Return the functions of digits and a network of 2,410 parameters.

    Args:
      seed: Random seed of the start value and of all minibatches.
      steps: Number of local updates.
      batch: Number of examples of a gradient evaluation.
      lr: Learning rate of SGD.
    """
    training, held_out = (Batch(*map(jnp.asarray, part)) for part in digits())
    model = mlp(training.inputs.shape[1:], 10, widths=WIDTHS)
    start, unravel = ravel_pytree(model.init(jax.random.key(seed)))
    key, count = jax.random.key(seed + 1), len(training.targets)

    def loss(vector: jax.Array, indices: jax.Array) -> jax.Array:
        chosen = Batch(training.inputs[indices], training.targets[indices])
        mean: jax.Array = model.loss(unravel(vector), chosen)
        return mean

    def descend(vector: jax.Array, draw: jax.Array) -> tuple[jax.Array, None]:
        indices = jax.random.randint(draw, (batch,), 0, count)
        return vector - lr * jax.grad(loss)(vector, indices), None

    def one(vector: jax.Array, seat: jax.Array, t: jax.Array) -> jax.Array:
        own = jax.random.fold_in(jax.random.fold_in(key, t), seat)
        return jax.lax.scan(descend, vector, jax.random.split(own, steps))[0]

    def weighted(vector: jax.Array, weights: jax.Array) -> jax.Array:
        return weights @ jax.vmap(lambda i: loss(vector, i))(jnp.arange(count)[:, None])

    chunk = jax.jit(jax.vmap(one, (0, 0, None)))
    gradient = jax.jit(jax.grad(weighted))
    right = jax.jit(
        jax.vmap(lambda vector: model.metrics(unravel(vector), held_out)["accuracy"])
    )

    def update(vector: Any, number: int, peers: int, factor: float) -> Any:
        # the mean of minibatches weights each example by the number of its draws
        generator = np.random.default_rng((seed, number))
        counts = generator.multinomial(peers * batch, np.full(count, 1 / count))
        weights = (counts / counts.sum()).astype(np.float32)
        return vector - factor * lr * gradient(vector, weights)

    return Learner(
        np.asarray(start),
        lambda rows, seats, t: by_chunks(chunk, rows, seats, t),
        update,
        lambda rows: float(right(np.atleast_2d(rows)).mean()),
    )


def by_chunks(
    compiled: Callable[..., jax.Array], rows: np.ndarray, seats: np.ndarray, t: int
) -> None:
    """Update the rows of some seats in place.

    Args:
      compiled: (rows, seats, round) -> rows, for CHUNK seats.
      rows: Vector of each seat.
      seats: Seats that compute.
      t: Number of the round.
    """
    for first in range(0, len(seats), CHUNK):
        block = seats[first : first + CHUNK]
        padded = np.resize(block, CHUNK)  # one shape, so one compilation
        rows[block] = np.asarray(compiled(rows[padded], padded, t))[: len(block)]
