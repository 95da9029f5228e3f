"""Compiled programs of hybrid training: gradients of a minibatch, and their update.

Gradients   params, microbatches → a schedule executed → sums over the axes
updating    gradients, state, params → clipping → each device's parts
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.sharding import PartitionSpec

from dml.strategies.hybrid.gradients import all_reduce_grads, clipped
from dml.strategies.hybrid.layout import Layout, each_part, place
from dml.strategies.hybrid.parts import TRANSPOSED, Part, Pipeline
from dml.strategies.hybrid.pipeline import PART, TRAVEL, execute
from dml.strategies.hybrid.transposed import transposed
from dml.types import Batch, Tensor
from dml.update.dense import Optimizer
from dml.wire.mesh.axes import (
    EXAMPLE_POSITIONS,
    EXAMPLES,
    POSITIONS,
    REPLICATED,
    RING,
    SHARDED,
    replicas,
)
from dml.wire.mesh.packed import Vectors, read, write
from dml.wire.mesh.traffic import collectives, ring_bytes
from dml.wire.plans.pipelines import Schedule, make
from dml.wire.plans.slots import instructions


class Gradients:
    """The compiled programs of a pipeline, by microbatches and examples."""

    def __init__(self, model: Tensor, layout: Layout, pipeline: Pipeline) -> None:
        self.model, self.layout, self.pipeline = model, layout, pipeline
        self.calls: dict[tuple[int, int], jax.stages.Compiled] = {}
        self.sent: dict[str, float] = {}  # bytes of a device in a step, by axis

    def __call__(self, params: Vectors, batch: Batch, microbatches: int) -> Any:
        """Return the mean loss and the gradients.

        With microbatches = 0 all replicas compute the same single microbatch.
        """
        spec, count = self.spec(bool(microbatches)), max(1, microbatches)

        def placed(leaf: np.ndarray) -> jax.Array:
            leaf = leaf.reshape(count, -1, *leaf.shape[1:])
            return place(leaf, self.layout.axes, spec)

        arguments = params, jax.tree.map(placed, batch)
        key = microbatches, len(jax.tree.leaves(batch)[0])
        if key not in self.calls:
            self.calls[key] = self.program(count, spec).lower(*arguments).compile()
            # the words of a transposed backward are not known
            if microbatches and self.pipeline.schedule != TRANSPOSED and not self.sent:
                self.sent = bytes_sent(self.calls[key], self.schedule(count))
        return self.calls[key](*arguments)

    def spec(self, divided: bool) -> PartitionSpec:
        """Return the partition of a batch, whose examples may be divided."""
        if RING in self.layout.axes.axis_names:
            return EXAMPLE_POSITIONS if divided else POSITIONS
        return EXAMPLES if divided else REPLICATED

    @property
    def temporary(self) -> int:
        """Bytes of a device besides arguments and results, as compiled."""
        analyses = [call.memory_analysis() for call in self.calls.values()]
        return max(
            (memory.temp_size_in_bytes for memory in analyses if memory), default=0
        )

    def schedule(self, microbatches: int) -> Schedule:
        """Return the schedule of a number of microbatches."""
        pipeline, stages = self.pipeline, self.layout.axes.shape["stage"]
        return make(
            pipeline.name, stages, microbatches, pipeline.rounds, pipeline.pieces
        )

    def program(self, microbatches: int, spec: PartitionSpec) -> Any:
        """Return the program of `microbatches` on each replica, not compiled."""
        layout, remat = self.layout, self.pipeline.remat
        if self.pipeline.schedule == TRANSPOSED:
            on_device = transposed(layout, microbatches, remat)
        else:
            on_device = execute(layout, self.schedule(microbatches), remat)

        def means(params: Vectors, batches: Batch) -> tuple[Any, Vectors]:
            loss, grads = on_device(params, batches)
            # all devices of `tensor` have the loss, but only the last of `stage`
            names = replicas(layout.axes)
            loss = jax.lax.psum(loss, (*names, "stage")) / jax.lax.axis_size(names)
            return loss, all_reduce_grads(layout, self.model, grads)

        return jax.jit(
            jax.shard_map(
                means,
                mesh=layout.axes,
                in_specs=(SHARDED, spec),
                out_specs=(REPLICATED, SHARDED),
                check_vma=False,  # gradients.py has all sums
            )
        )


class Learner(NamedTuple):
    """A model with the layouts of its params and of the optimizer's state."""

    model: Tensor
    layout: Layout
    states: Layout
    optimizer: Optimizer


def updating(
    learner: Learner, clip: float
) -> Callable[[Vectors, Vectors, Vectors], tuple[Vectors, Vectors]]:
    """Return the compiled update of params and state; each device updates its parts."""
    layout = learner.layout

    def update(grads: Vectors, state: Vectors, params: Vectors) -> tuple[Any, Any]:
        if clip:
            grads = clipped(layout, grads, clip)
        step = partial(optimizer_step, learner, grads)
        # order matters: with params first XLA fuses other operations, and bits differ
        state, params = each_part(layout.parts, step, (state, params))
        return params, state

    return jax.jit(
        jax.shard_map(
            update,
            mesh=layout.axes,
            in_specs=(SHARDED, SHARDED, SHARDED),
            out_specs=(SHARDED, SHARDED),
            check_vma=False,
        ),
        donate_argnums=(0, 1),  # not params: the last Step may still be in use
    )


def optimizer_step(
    learner: Learner, grads: Vectors, part: Part, memory: tuple[Vectors, Vectors]
) -> tuple[Vectors, Vectors]:
    """OptimizerStep: update the optimizer's state and the params of one part.

    Args:
      learner: The model, the layouts and the optimizer.
      grads: Gradients of the params.
      part: The part.
      memory: Optimizer state and params.
    """
    (_, layout, states, optimizer), (state, params) = learner, memory
    packed, at = states.packings[part.number], layout.start(part)
    before = read(params, part.params, at)
    updates, after = optimizer.update(
        read(grads, part.params, at), read(state, packed, states.start(part)), before
    )
    params = write(params, part.params, optax.apply_updates(before, updates), at)
    return write(state, packed, after, states.start(part)), params


def bytes_sent(compiled: jax.stages.Compiled, schedule: Schedule) -> dict[str, float]:
    """Return the mean bytes that a device sends in a step by rings, for each axis.

    tensor   in parts: once per microbatch, by one stage of K
    sequence as tensor: keys and values of ring attention, and their gradients
    stage    activations and gradients: in every tick in which any stage receives
    data     gradients, params of several parts and norms: once

    The collectives are read from XLA's text, their numbers from the schedule.
    """
    table = instructions(schedule)
    ticks = [
        int(np.count_nonzero((column >= 0).any(axis=1)))
        for column in (table.recv_activations, table.recv_gradients)
    ]
    nbytes = {"tensor": 0.0, "stage": 0.0, "data": 0.0}
    for collective in collectives(compiled.as_text() or ""):
        if PART in collective.op_name and collective.kind == "collective-permute":
            rounds = collective.times / len(
                table.piece
            )  # `times` counts those of all ticks
            ring = (
                ring_bytes(collective)
                * rounds
                * schedule.microbatches
                / schedule.stages
            )
            nbytes[RING] = nbytes.get(RING, 0.0) + ring
        elif PART in collective.op_name:
            nbytes["tensor"] += (
                ring_bytes(collective) * schedule.microbatches / schedule.stages
            )
        elif TRAVEL in collective.op_name:
            nbytes["stage"] += ring_bytes(collective) * sum(ticks) / len(ticks)
        else:
            nbytes["data"] += ring_bytes(collective)
    return nbytes
