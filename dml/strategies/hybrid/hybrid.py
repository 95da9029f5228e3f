"""Training on a mesh of three axes: examples, layers and matrices are divided at once.

    data 0   stage 0 → stage 1 → stage 2     microbatches pass through the stages;
    data 1   stage 0 → stage 1 → stage 2     gradients are summed over data; the devices
             └ tensor 0, 1: slices ┘         of a stage have slices of its matrices

Examples that cannot be divided equally among replicas and microbatches form one more
microbatch, which all replicas compute. A Step measures the bytes that a device sends
over each axis; `programs.bytes_sent` states the collectives.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from dml.data.feed import feed
from dml.metrics.timer import Timer
from dml.models.gradient import add_scaled
from dml.strategies.hybrid.layout import layout_of
from dml.strategies.hybrid.parts import Pipeline, divide
from dml.strategies.hybrid.pipedream import check_pipedream, pipedream
from dml.strategies.hybrid.programs import Gradients, Learner, updating
from dml.strategies.mesh import local, nbytes
from dml.types import BadInput, Comm, Model, Params, Problem, Step, Tensor, identity
from dml.update.dense import Optimizer
from dml.wire.mesh.axes import REPLICATED


def hybrid(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Optimizer,
    *,
    comm: Comm,
    timer: Timer,
    axes: Mesh,
    pipeline: Pipeline,
    tensor: Tensor | None = None,
    clip: float = 0.0,
    prefetch: int = 2,
    state: Any = None,
) -> Iterator[Step]:
    """Train on a mesh of devices; yield a Step after every update.

    Args:
      problem: Problem to train; its model has layers.
      batches: Indices of each global minibatch, equal in all processes.
      update: optax optimizer that does not clip: no device has the norm of all
        gradients.
      comm: Ranks, one JAX process each.
      timer: Measures the phases.
      axes: Mesh with the axes data, stage and tensor, and optionally sequence.
      pipeline: Division among stages, and their schedule.
      tensor: Layers of one device of the axis tensor; None: the model's layers,
        replicated.
      clip: Greatest norm of the gradients; 0 does not clip.
      prefetch: Number of minibatches prepared in the background.
      state: State of the optimizer in an earlier Step; None starts anew.
    """
    assert problem.model
    start = problem.params
    model = tensor or dense(problem.model, start)
    parts = divide(model, start, axes, pipeline)
    if pipeline.schedule == "pipedream":
        check_pipedream(parts, pipeline, clip)
    layout = layout_of(parts, start, axes, identity)
    states = layout_of(parts, start, axes, update.init)
    learner = Learner(model, layout, states, update)
    state = states.scatter(update.init(start) if state is None else state)
    params = layout.scatter(start)
    if pipeline.schedule == "pipedream":
        fed = feed(problem.take, batches, lambda index: [index], prefetch=prefetch)
        both = params, state
        yield from pipedream(
            learner, pipeline, both, fed=fed, timer=timer, work=comm.platform.work
        )
        return
    gradients, updated = Gradients(model, layout, pipeline), updating(learner, clip)
    split = partial(shares, axes.shape["data"], pipeline.microbatches)
    fed = feed(problem.take, batches, split, prefetch=prefetch)
    for number, (count, (even, rest)) in enumerate(timer.waits("input", fed), 1):
        with timer("gradient"):
            total, remaining = None, rest.examples if rest else 0
            if even:
                equal = gradients(params, even.batch, pipeline.microbatches)
                total = add_scaled(None, equal, 1 - remaining / count)
            if rest:
                uneven = gradients(params, rest.batch, 0)
                total = add_scaled(total, uneven, remaining / count)
            loss, grads = jax.block_until_ready(total)
            comm.platform.work(1)
        with timer("update"):
            params, state = jax.block_until_ready(updated(grads, state, params))
        yield Step(
            number=number,
            loss=float(jax.device_get(local(loss))),
            params=partial(layout.collect, params),
            examples=count,
            seconds=timer.lap(),
            words_sent=0,
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
            "expected a model with layers, got a model without; pass a network"
        )
    specs = jax.tree.map(lambda _: REPLICATED, params)
    return Tensor(model.layers, specs, jax.tree.map(lambda _: False, params))


def shares(replicas: int, microbatches: int, index: np.ndarray) -> list[np.ndarray]:
    """Return the examples that can be divided equally, and those that are left over.

    The first are in the order of microbatches, then of replicas.
    """
    even = len(index) - len(index) % (replicas * microbatches)
    equal = index[:even].reshape(replicas, microbatches, -1)
    return [equal.swapaxes(0, 1).reshape(-1), index[even:]]
