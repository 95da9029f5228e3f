"""One worker, no wire: the reference that every other strategy is compared with.

Params and the global minibatches in, a Step after every update out.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from dml.data.feed import feed
from dml.data.shards import shards
from dml.metrics.timer import Timer
from dml.models.gradient import accumulated
from dml.types import Batch, Examples, Model, Params, Step, nothing
from dml.update.dense import Optimizer, apply


def serial(
    model: Model,
    params: Params,
    data: Batch | Examples,
    batches: Iterable[np.ndarray],
    optimizer: Optimizer,
    timer: Timer,
    *,
    state: Any = None,
    accumulate: int = 1,
    ahead: int = 0,
    work: Callable[[float], object] = nothing,
) -> Iterator[Step]:
    """Train on data, one minibatch of batches (indices into it) a step.

    The gradient is accumulated over so many microbatches. State is the optimizer's, of
    an earlier Step; minibatches are made ahead in the background, so many.
    """
    params, state = put((params, optimizer.init(params) if state is None else state))
    fed = feed(data, batches, lambda index: shards(index, accumulate), put, ahead)
    for number, (count, parts) in enumerate(timer.waits("input", fed), 1):
        parts, weights = shares(parts, count)
        with timer("gradient"):
            loss, grads = jax.block_until_ready(
                accumulated(model.loss, params, parts, weights)
            )
            work(1)
        with timer("update"):
            params, state = jax.block_until_ready(
                apply(optimizer, grads, state, params)
            )
        yield Step(
            *(number, float(jax.device_get(loss)), params, count, timer.lap(), 0),
            state=partial(jax.device_get, state),
        )


def shares(
    parts: Iterable[Batch | None], count: int
) -> tuple[list[Batch], list[float]]:
    """Return what is not empty of a minibatch, and each part's share of it."""
    found = [part for part in parts if part is not None]
    return found, [examples(part) / count for part in found]


def examples(batch: Batch) -> int:
    """Return how many examples a batch has."""
    return len(jax.tree.leaves(batch.targets)[0])


def put(tree: Any) -> Any:
    """Give a tree to this process's first device.

    What is bound to none is another argument to JAX: all would be compiled twice.
    """
    return jax.device_put(tree, jax.local_devices()[0])
