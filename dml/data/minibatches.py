"""BATCH: a seed in, the examples' numbers of one global minibatch after another out.

Nothing here knows of ranks: the order is the same for any number of them, and each
rank then takes its shard of every global minibatch.
"""

import itertools
from collections.abc import Iterator

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
        order[start : start + batch]
        for epoch in turns
        # seeded by the epoch: a run can resume at any epoch without replaying others
        for order in [np.random.default_rng([seed, epoch]).permutation(count)]
        for start in range(0, count, batch)
    )


def take(data: Batch | Examples, index: np.ndarray) -> Batch:
    """Return the examples that index names, a copy of them; of Examples, those draws.

    Of data in memory, a draw of a later epoch is the same example again.
    """
    if isinstance(data, Examples):
        return data.take(index)
    index = index % len(data.targets)
    return Batch(data.inputs[index], data.targets[index])
