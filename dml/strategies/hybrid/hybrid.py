"""Training divided three ways at once: examples, layers, and matrices over a mesh.

    data 0   stage 0 → stage 1 → stage 2     microbatches travel along stages, gradients
    data 1   stage 0 → stage 1 → stage 2     of replicas meet over data; every stage is
             └ tensor 0, 1: slices ┘         some devices that share its matrices

Params and the global minibatches in, a Step after every update out. What replicas and
microbatches cannot share equally is one microbatch more, that all replicas compute.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from dml.data.feed import feed
from dml.metrics.timer import Timer
from dml.models.gradient import plus
from dml.strategies.hybrid.parts import holding
from dml.strategies.hybrid.pipedream import pipedream
from dml.strategies.hybrid.programs import (
    Gradients,
    Pipeline,
    divided,
    nbytes,
    updating,
)
from dml.strategies.serial import examples
from dml.types import BadInput, Batch, Examples, Model, Params, Step, Tensor, nothing
from dml.update.dense import Optimizer
from dml.wire.mesh.axes import WHOLE


def hybrid(
    model: Tensor,
    params: Params,
    data: Batch | Examples,
    batches: Iterable[np.ndarray],
    optimizer: Optimizer,
    timer: Timer,
    *,
    axes: Mesh,
    pipeline: Pipeline,
    clip: float = 0.0,
    state: Any = None,
    ahead: int = 2,
    work: Callable[[float], object] = nothing,
) -> Iterator[Step]:
    """Train as serial does, on axes' devices; params, data, batches are equal on all.

    The optimizer must not clip: gradients are, by their whole norm, before it.
    """
    if pipeline.schedule == "pipedream":
        yield from pipedream(
            *(model, params, data, batches, optimizer, timer),
            **{"axes": axes, "pipeline": pipeline, "clip": clip, "state": state},
            ahead=ahead,
            work=work,
        )
        return
    mine = divided(model, params, axes, pipeline)
    held = holding(mine, params, axes, lambda tree: tree)
    kept = holding(mine, params, axes, optimizer.init)
    gradients = Gradients(model, held, pipeline)
    update = updating(held, kept, optimizer, clip)
    now = held.hold(params)
    state = kept.hold(optimizer.init(params) if state is None else state)
    split = partial(shares, axes.shape["data"], pipeline.microbatches)
    fed = feed(data, batches, split, ahead=ahead)
    for number, (count, (even, rest)) in enumerate(timer.waits("input", fed), 1):
        with timer("gradient"):
            found, left = None, 0 if rest is None else examples(rest)
            if even is not None:
                equal = gradients(now, even, pipeline.microbatches)
                found = plus(None, equal, 1 - left / count)
            if rest is not None:
                found = plus(found, gradients(now, rest, 0), left / count)
            loss, grads = jax.block_until_ready(found)
            work(1)
        with timer("update"):
            now, state = jax.block_until_ready(update(grads, state, now))
        yield Step(
            *(number, float(jax.device_get(loss.addressable_data(0)))),
            partial(held.collect, now),
            count,
            timer.lap(),
            0,
            measures={
                "bytes_held": nbytes((now, state)),
                "bytes_temporary": gradients.temporary,
                **{f"{axis}_bytes": sent for axis, sent in gradients.sent.items()},
            },
            state=partial(kept.collect, state),
        )


def dense(model: Model, params: Params) -> Tensor:
    """Return a model that is whole on every device."""
    if not model.layers:
        raise BadInput(
            "expected a model of layers, got one whose loss is whole; pass a network"
        )
    specs = jax.tree.map(lambda _: WHOLE, params)
    return Tensor(model.layers, specs, jax.tree.map(lambda _: False, params))


def shares(replicas: int, microbatches: int, index: np.ndarray) -> list[np.ndarray]:
    """Return the examples that all share equally, and the rest.

    The first are ordered by microbatch, then by replica.
    """
    even = len(index) - len(index) % (replicas * microbatches)
    mine = index[:even].reshape(replicas, microbatches, -1)
    return [mine.swapaxes(0, 1).reshape(-1), index[even:]]
