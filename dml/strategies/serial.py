"""One worker, no wire: the reference that every other strategy is compared with.

Params and the global minibatches in, a Step after every update out.
"""

from collections.abc import Iterable, Iterator

import jax
import numpy as np

from dml.data.minibatches import take
from dml.metrics.timer import Timer
from dml.models.gradient import gradient
from dml.types import Batch, Model, Params, Step
from dml.update.dense import Optimizer, apply


def serial(
    model: Model,
    params: Params,
    data: Batch,
    batches: Iterable[np.ndarray],
    optimizer: Optimizer,
    timer: Timer,
) -> Iterator[Step]:
    """Train on data, one minibatch of batches (indices into it) a step."""
    state = optimizer.init(params)
    for number, index in enumerate(batches, 1):
        with timer("gradient", work=1):
            loss, grads = jax.block_until_ready(
                gradient(model.loss, params, take(data, index))
            )
        with timer("update"):
            params, state = jax.block_until_ready(
                apply(optimizer, grads, state, params)
            )
        yield Step(number, float(loss), params, len(index), timer.lap(), words_sent=0)
