"""Indices of global minibatches, by seed.

A global minibatch has the examples of all ranks; each rank takes its shard. The order
does not depend on the number of ranks.
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
        epoch_order(count, seed, epoch)[start : start + batch]
        for epoch in epoch_numbers
        for start in range(0, count, batch)
    )


@lru_cache(maxsize=1)  # virtual ranks share one order
def epoch_order(count: int, seed: int, epoch: int) -> np.ndarray:
    """Return the order of examples in an epoch: a permutation of 0 … count - 1.

    The epoch is part of the seed, so a run can resume at any epoch without computing
    the orders of earlier epochs.
    """
    order = np.random.default_rng([seed, epoch]).permutation(count)
    order.flags.writeable = False
    return order


def draws(
    count: int, batch: int, seed: int, examples: int, start: int = 0
) -> Iterator[np.ndarray]:
    """Yield the draw numbers of each minibatch, int64: epoch * count + example.

    The order of the examples is that of `minibatches`. A minibatch may span several
    epochs, so all minibatches except the last have equal length.

    Args:
      count: Number of distinct examples.
      batch: Draws per minibatch.
      seed: Random seed.
      examples: Total number of draws.
      start: Number of draws to skip, to resume a run.
    """
    if min(count, batch) < 1 or not 0 <= start <= examples:
        raise BadInput(
            f"expected count and batch of 1 or more and start of 0 to {examples}, got "
            f"{count=}, {batch=} and {start=}; pass --batch=<1 or more>"
        )
    return _draws(count, batch, seed, range(start, examples))


def _draws(count: int, batch: int, seed: int, positions: range) -> Iterator[np.ndarray]:
    """Yield minibatches of a range of positions in the infinite sequence of draws."""
    for first in range(0, len(positions), batch):
        remaining = positions[first : first + batch]
        parts = []  # one per epoch
        while remaining:
            epoch, start = divmod(remaining[0], count)
            order = epoch_order(count, seed, epoch)
            parts.append(epoch * count + order[start : start + len(remaining)])
            remaining = remaining[len(parts[-1]) :]
        yield np.concatenate(parts)


def take(data: Batch | Examples, index: np.ndarray) -> Batch:
    """Return a copy of the examples with the draw numbers `index`.

    The examples of a Batch are the same in every epoch; its inputs and targets may be
    pytrees of arrays.
    """
    if isinstance(data, Examples):
        return data.take(index)
    import jax  # imported here: strategies without JAX start faster

    index = index % len(jax.tree.leaves(data.targets)[0])
    return jax.tree.map(lambda array: array[index], data)
