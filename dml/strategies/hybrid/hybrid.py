"""Training on a mesh of three axes, which divide examples, layers and matrices.

    data 0   stage 0 → stage 1 → stage 2     Microbatches pass through the stages.
    data 1   stage 0 → stage 1 → stage 2     Gradients are averaged over data. The
             └ tensor 0, 1: slices ┘         devices of a stage have slices of its
                                             matrices.

Examples that cannot be divided equally among replicas and microbatches form one more
microbatch, which all replicas compute. A Step measures the bytes that a device sends
over each axis; `programs.bytes_sent` lists the collectives.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Annotated, Any

import jax
import numpy as np
from jax.sharding import Mesh

from dml.data.feed import feed
from dml.metrics.timer import Timer
from dml.models.gradient import add_scaled
from dml.strategies.hybrid.layout import layout_of
from dml.strategies.hybrid.parts import Pipeline, divide
from dml.strategies.hybrid.pipedream import check_pipedream, pipedream
from dml.strategies.hybrid.programs import (
    GradientPrograms,
    Learner,
    compile_update,
    gathered_bytes,
)
from dml.strategies.mesh import local, nbytes
from dml.strategies.zero import ZERO
from dml.types import BadInput, Comm, Model, Params, Problem, Step, Tensor, identity
from dml.types.ranges import Number, OneOf, Size, checked
from dml.update.dense import Optimizer
from dml.wire.mesh.axes import REPLICATED


@checked
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
    clip: Number = 0.0,
    zero: Annotated[int, OneOf(tuple(ZERO))] = 0,
    prefetch: Size = 2,
    state: Any = None,
) -> Iterator[Step]:
    """Train on a mesh of devices; yield a Step after every update.

    Args:
      problem: Problem to train; its model has layers.
      batches: Indices of each global minibatch, equal in all processes.
      update: optax optimizer that does not clip, as no device has all gradients; see
        `clip`.
      comm: Ranks, one JAX process each.
      timer: Measures the phases.
      axes: Mesh with the axes data, stage and tensor, and optionally sequence.
      pipeline: Division of the layers among stages, and the schedule of the stages.
      tensor: Layers sharded over the axis tensor; None: the layers of the problem's
        model, replicated over the axis.
      clip: Largest norm of the gradients; 0 does not clip.
      zero: 1: the state of the optimizer is sliced over the axis data, and `update` is
        an optimizer of slices over tensor and data; 0: replicas have equal states.
      prefetch: Number of minibatches prepared in the background.
      state: State of the optimizer in an earlier Step; None: the initial state.
    """
    assert problem.model
    check_zero(zero, pipeline.schedule)
    start = problem.params
    model = tensor or replicate_layers(problem.model, start)
    parts = divide(model, start, axes, pipeline)
    if pipeline.schedule == "pipedream":
        check_pipedream(parts, pipeline, clip)
    layout = layout_of(parts, start, axes, identity)
    replicas = axes.shape["data"] if zero else 1
    states = layout_of(parts, start, axes, update.init, replicas)
    learner = Learner(model, layout, states, update)
    state = states.scatter(update.init(start) if state is None else state)
    params = layout.scatter(start)
    if pipeline.schedule == "pipedream":
        undivided = partial(feed, problem.take, batches, lambda index: [index])
        yield from pipedream(
            learner,
            pipeline,
            params,
            state,
            minibatches=undivided(prefetch=prefetch),
            timer=timer,
            work=comm.platform.work,
        )
        return
    gradients = GradientPrograms(model, layout, pipeline)
    apply_gradients = compile_update(learner, clip)
    split = partial(divide_examples, axes.shape["data"], pipeline.microbatches)
    minibatches = feed(problem.take, batches, split, prefetch=prefetch)
    gathered = gathered_bytes(learner)
    for number, (count, (divided, remainder)) in enumerate(
        timer.waits("input", minibatches), 1
    ):
        with timer("gradient"):
            # of the minibatch: the loss and the gradients
            total = None
            share = (remainder.examples if remainder else 0) / count
            if divided:
                term = gradients(params, divided.batch, pipeline.microbatches)
                total = add_scaled(None, term, 1 - share)
            if remainder:
                term = gradients(params, remainder.batch, 0)
                total = add_scaled(total, term, share)
            loss, grads = jax.block_until_ready(total)
            comm.platform.work(1)
        with timer("update"):
            params, state = jax.block_until_ready(apply_gradients(grads, state, params))
        sent = dict(gradients.bytes_sent)
        if sent:
            sent["data"] += gathered
        yield Step(
            number=number,
            loss=float(jax.device_get(local(loss))),
            params=partial(layout.collect, params),
            examples=count,
            seconds=timer.lap(),
            words_sent=0,
            measures={
                "bytes_held": nbytes((params, state)),
                "bytes_temporary": gradients.temporary_bytes,
                **{f"{axis}_bytes": n for axis, n in sent.items()},
            },
            state=partial(states.collect, state),
        )


def check_zero(zero: int, schedule: str) -> None:
    """Raise BadInput for levels of ZeRO that hybrid does not have."""
    if zero > 1:
        raise BadInput(
            f"expected --zero=0 or 1 with --strategy=hybrid, got {zero}; pass "
            "--strategy=mesh for slices of gradients and params"
        )
    if zero and schedule == "pipedream":
        raise BadInput(
            "expected --zero=0 with --pipeline=pipedream, whose stages update at "
            f"different times, got {zero}; pass --pipeline=1f1b"
        )


def replicate_layers(model: Model, params: Params) -> Tensor:
    """Return a Tensor with the layers of a model, replicated over the axis tensor."""
    if not model.layers:
        raise BadInput(
            "expected a model with layers, got a model without; pass a network"
        )
    specs = jax.tree.map(lambda _: REPLICATED, params)
    return Tensor(model.layers, specs, jax.tree.map(lambda _: False, params))


def divide_examples(
    replicas: int, microbatches: int, indices: np.ndarray
) -> list[np.ndarray]:
    """Return the examples that can be divided equally, and the remaining examples.

    The first are ordered by microbatches, and by replicas in each microbatch.

    Args:
      replicas: Number of replicas.
      microbatches: Number of microbatches of a replica.
      indices: Indices of the examples of a minibatch.
    """
    count = len(indices) - len(indices) % (replicas * microbatches)
    divided = indices[:count].reshape(replicas, microbatches, -1)
    return [divided.swapaxes(0, 1).reshape(-1), indices[count:]]
