"""Training on a mesh of three axes: examples, layers and matrices are divided at once.

    data 0   stage 0 → stage 1 → stage 2     microbatches pass through the stages;
    data 1   stage 0 → stage 1 → stage 2     gradients are summed over data; the devices
             └ tensor 0, 1: slices ┘         of a stage have slices of its matrices

Examples that cannot be divided equally among replicas and microbatches are one more
microbatch, which all replicas compute.
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
from dml.strategies.hybrid.layout import laid_out, nbytes
from dml.strategies.hybrid.parts import Pipeline, divided
from dml.strategies.hybrid.pipedream import fits, pipedream
from dml.strategies.hybrid.programs import Gradients, Learner, updating
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
    """Train as serial does, on the devices of a mesh.

    Args:
      model: layers of one device of the axis tensor.
      params: start value; equal in all processes, as are data and batches.
      data: the examples.
      batches: numbers of the examples of each global minibatch.
      optimizer: must not clip, since no device has the norm of all gradients.
      timer: times input, gradient and update.
      axes: mesh with axes data, stage and tensor.
      pipeline: the division among stages, and their schedule.
      clip: greatest norm of the gradients; 0 does not clip.
      state: optimizer state of whole arrays; None starts with a new one.
      ahead: number of minibatches made in advance.
      work: called with 1 after every gradient.

    Yields:
      A Step after every update.
    """
    parts = divided(model, params, axes, pipeline)
    if pipeline.schedule == "pipedream":
        fits(parts, pipeline, clip)
    layout = laid_out(parts, params, axes, lambda tree: tree)
    states = laid_out(parts, params, axes, optimizer.init)
    learner = Learner(model, layout, states, optimizer)
    state = states.scatter(optimizer.init(params) if state is None else state)
    params = layout.scatter(params)
    if pipeline.schedule == "pipedream":
        fed = feed(data, batches, lambda index: [index], ahead=ahead)
        yield from pipedream(learner, pipeline, (params, state), fed, timer, work)
        return
    gradients, update = Gradients(model, layout, pipeline), updating(learner, clip)
    split = partial(shares, axes.shape["data"], pipeline.microbatches)
    fed = feed(data, batches, split, ahead=ahead)
    for number, (count, (even, rest)) in enumerate(timer.waits("input", fed), 1):
        with timer("gradient"):
            total, left = None, 0 if rest is None else examples(rest)
            if even is not None:
                equal = gradients(params, even, pipeline.microbatches)
                total = plus(None, equal, 1 - left / count)
            if rest is not None:
                total = plus(total, gradients(params, rest, 0), left / count)
            loss, grads = jax.block_until_ready(total)
            work(1)
        with timer("update"):
            params, state = jax.block_until_ready(update(grads, state, params))
        yield Step(
            number,
            float(jax.device_get(loss.addressable_data(0))),
            partial(layout.collect, params),
            count,
            timer.lap(),
            0,
            measures={
                "bytes_held": nbytes((params, state)),
                "bytes_temporary": gradients.temporary,
                **{f"{axis}_bytes": sent for axis, sent in gradients.sent.items()},
            },
            state=partial(states.collect, state),
        )


def dense(model: Model, params: Params) -> Tensor:
    """Return a model whose layers are replicated over the axis tensor."""
    if not model.layers:
        raise BadInput(
            "expected a model of layers, got one whose loss is whole; pass a network"
        )
    specs = jax.tree.map(lambda _: WHOLE, params)
    return Tensor(model.layers, specs, jax.tree.map(lambda _: False, params))


def shares(replicas: int, microbatches: int, index: np.ndarray) -> list[np.ndarray]:
    """Return the examples that are divided equally, and the rest.

    The former are in the order of microbatches, then of replicas.
    """
    even = len(index) - len(index) % (replicas * microbatches)
    equal = index[:even].reshape(replicas, microbatches, -1)
    return [equal.swapaxes(0, 1).reshape(-1), index[even:]]
