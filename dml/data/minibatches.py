"""Indices of global minibatches, by seed.

The order does not depend on the number of ranks; each rank takes its shard of every
global minibatch.
"""

import itertools
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from dml.types import BadInput, Batch, Examples


def minibatches(
    count: int, batch: int, seed: int, epochs: int | None = None
) -> Iterator[np.ndarray]:
    """Yield indices into count examples, reshuffled each epoch.

    The last minibatch of an epoch is shorter if `batch` does not divide `count`.

    Args:
      count: Number of examples.
      batch: Examples per minibatch.
      seed: Random seed.
      epochs: Number of epochs; None repeats forever.
    """
    if not 1 <= batch <= count:
        raise BadInput(
            f"expected a batch of 1 to {count} examples, got {batch=}; "
            f"pass --batch=<at most {count}>"
        )
    epoch_numbers = itertools.count() if epochs is None else range(epochs)
    return (
        shuffled(count, seed, epoch)[start : start + batch]
        for epoch in epoch_numbers
        for start in range(0, count, batch)
    )


@lru_cache(maxsize=1)  # virtual ranks share one order
def shuffled(count: int, seed: int, epoch: int) -> np.ndarray:
    """Return a permutation of 0 … count - 1 for an epoch.

    The epoch is part of the seed: a run can resume at any epoch without drawing the
    permutations of earlier epochs.
    """
    order = np.random.default_rng([seed, epoch]).permutation(count)
    order.flags.writeable = False
    return order


def draws(
    count: int, batch: int, seed: int, examples: int, start: int = 0
) -> Iterator[np.ndarray]:
    """Yield int64 draw numbers by minibatch: epoch * count + example.

    The order is that of `minibatches`. A minibatch may span two epochs, so all have
    equal length except the last.

    Args:
      count: Number of distinct examples.
      batch: Draws per minibatch.
      seed: Random seed.
      examples: Total number of draws.
      start: First draw, for resuming.
    """
    if min(count, batch) < 1 or not 0 <= start <= examples:
        raise BadInput(
            f"expected examples, a batch of one or more and a start of 0 to {examples=}"
            f", got {count=}, {batch=}, {start=}; pass --batch=<1 or more>"
        )
    return _draws(count, batch, seed, range(start, examples))


def _draws(count: int, batch: int, seed: int, positions: range) -> Iterator[np.ndarray]:
    """Yield minibatches of a range of positions in the infinite sequence of draws."""
    for first in range(0, len(positions), batch):
        remaining, parts = positions[first : first + batch], []
        while remaining:
            epoch, start = divmod(remaining[0], count)
            order = shuffled(count, seed, epoch)
            parts.append(epoch * count + order[start : start + len(remaining)])
            remaining = remaining[len(parts[-1]) :]
        yield np.concatenate(parts)


def take(data: Batch | Examples, index: np.ndarray) -> Batch:
    """Return a copy of the examples with these draw numbers.

    A Batch has equal examples in every epoch; its inputs and targets may be trees of
    arrays.
    """
    if isinstance(data, Examples):
        return data.take(index)
    import jax  # imported here: strategies without jax start faster

    index = index % len(jax.tree.leaves(data.targets)[0])
    return jax.tree.map(lambda array: array[index], data)
