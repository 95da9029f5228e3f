"""BATCH: a seed in, the examples' numbers of one global minibatch after another out.

Nothing here knows of ranks: the order is the same for any number of them, and each
rank then takes its shard of every global minibatch.
"""

import itertools
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from dml.types import BadInput, Batch, Examples


def minibatches(
    count: int, batch: int, seed: int, epochs: int | None = None
) -> Iterator[np.ndarray]:
    """Yield indices into count examples, shuffled anew every epoch, for ever or epochs.

    The last minibatch of an epoch is shorter where batch does not divide count.
    """
    if not 1 <= batch <= count:
        raise BadInput(
            f"expected a batch of 1 to {count} examples, got {batch=}; "
            f"pass --batch=<at most {count}>"
        )
    turns = itertools.count() if epochs is None else range(epochs)
    return (
        shuffled(count, seed, epoch)[start : start + batch]
        for epoch in turns
        for start in range(0, count, batch)
    )


@lru_cache(maxsize=1)  # virtual ranks share one order
def shuffled(count: int, seed: int, epoch: int) -> np.ndarray:
    """Return the numbers 0 to count - 1 in the order of an epoch.

    Seeded by the epoch: a run can resume at any epoch without replaying others.
    """
    order = np.random.default_rng([seed, epoch]).permutation(count)
    order.flags.writeable = False
    return order


def draws(
    count: int, batch: int, seed: int, examples: int, start: int = 0
) -> Iterator[np.ndarray]:
    """Yield the numbers of the draws start … examples - 1 of count examples, in int64.

    They are epoch * count + example, in the order of `minibatches`. A minibatch that
    begins in one epoch ends in the next, so all have one length but the last.
    """
    if min(count, batch) < 1 or not 0 <= start <= examples:
        raise BadInput(
            f"expected examples, a batch of one or more and a start of 0 to {examples=}"
            f", got {count=}, {batch=}, {start=}; pass --batch=<1 or more>"
        )
    return _draws(count, batch, seed, range(start, examples))


def _draws(count: int, batch: int, seed: int, places: range) -> Iterator[np.ndarray]:
    """Cut places of the endless stream, count an epoch, into minibatches."""
    for first in range(0, len(places), batch):
        wanted, parts = places[first : first + batch], []
        while wanted:
            epoch, at = divmod(wanted[0], count)
            order = shuffled(count, seed, epoch)
            parts.append(epoch * count + order[at : at + len(wanted)])
            wanted = wanted[len(parts[-1]) :]
        yield np.concatenate(parts)


def take(data: Batch | Examples, index: np.ndarray) -> Batch:
    """Return the examples that index names, a copy of them; of Examples, those draws.

    Of data in memory, a draw of a later epoch is the same example again. Inputs and
    targets may be trees of arrays.
    """
    if isinstance(data, Examples):
        return data.take(index)
    import jax  # here: strategies that need no jax need not wait for it

    index = index % len(jax.tree.leaves(data.targets)[0])
    return jax.tree.map(lambda array: array[index], data)
