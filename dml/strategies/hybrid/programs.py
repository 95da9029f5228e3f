"""Compiled programs of hybrid training: gradients of a minibatch, and their update.

GradientPrograms   params, microbatches → pipeline → sums over the axes → gradients
compile_update     gradients, state, params → clipping → optimizer, part by part
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.sharding import PartitionSpec

from dml.strategies.hybrid.gradients import all_reduce_grads, clip_by_norm
from dml.strategies.hybrid.layout import StageLayout, apply_to_parts, place
from dml.strategies.hybrid.parts import TRANSPOSED, Pipeline, StagePart
from dml.strategies.hybrid.pipeline import (
    COMPUTE_SCOPE,
    SEND_SCOPE,
    scheduled_program,
)
from dml.strategies.hybrid.transposed import transposed_program
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
from dml.wire.mesh.slices import gather_slices, own_slices
from dml.wire.mesh.traffic import collectives, ring_bytes
from dml.wire.plans.pipeline.schedules import Schedule, make
from dml.wire.plans.pipeline.slots import DIRECTIONS, directions_of, instructions


class GradientPrograms:
    """Programs for the gradients of a minibatch.

    They are compiled by the number of microbatches and of examples.
    """

    def __init__(self, model: Tensor, layout: StageLayout, pipeline: Pipeline) -> None:
        self.model, self.layout, self.pipeline = model, layout, pipeline
        self.calls: dict[tuple[int, int], jax.stages.Compiled] = {}
        # mean bytes that a device sends per step, by axis
        self.bytes_sent: dict[str, float] = {}

    def __call__(self, params: Vectors, batch: Batch, microbatches: int) -> Any:
        """Return the mean loss and the gradients.

        Args:
          params: Params of the model.
          batch: A minibatch, with its examples ordered by microbatches.
          microbatches: Number of microbatches of a replica; 0: all replicas compute the
            same single microbatch.
        """
        spec, count = self.spec(bool(microbatches)), max(1, microbatches)

        def place_microbatches(leaf: np.ndarray) -> jax.Array:
            leaf = leaf.reshape(count, -1, *leaf.shape[1:])
            return place(leaf, self.layout.axes, spec)

        arguments = params, jax.tree.map(place_microbatches, batch)
        key = microbatches, len(jax.tree.leaves(batch)[0])
        if key not in self.calls:
            call = self.program(count, spec).lower(*arguments).compile()
            self.calls[key] = call
            # bytes are counted by named scopes, which a transposed program has not
            has_scopes = self.pipeline.schedule != TRANSPOSED
            if microbatches and has_scopes and not self.bytes_sent:
                self.bytes_sent = bytes_sent(call, self.schedule(count))
        return self.calls[key](*arguments)

    def spec(self, divided: bool) -> PartitionSpec:
        """Return the partition of a batch.

        divided: whether its examples are divided among the replicas.
        """
        if RING in self.layout.axes.axis_names:
            return EXAMPLE_POSITIONS if divided else POSITIONS
        return EXAMPLES if divided else REPLICATED

    @property
    def temporary_bytes(self) -> int:
        """Largest number of bytes of temporaries on a device, from the compiler."""
        analyses = [call.memory_analysis() for call in self.calls.values()]
        return max(
            (memory.temp_size_in_bytes for memory in analyses if memory), default=0
        )

    def schedule(self, microbatches: int) -> Schedule:
        """Return the schedule for a number of microbatches."""
        pipeline, stages = self.pipeline, self.layout.axes.shape["stage"]
        return make(
            pipeline.name, stages, microbatches, pipeline.rounds, pipeline.pieces
        )

    def program(self, microbatches: int, spec: PartitionSpec) -> Any:
        """Return the program for a number of microbatches per replica, not compiled."""
        layout, remat = self.layout, self.pipeline.remat
        if self.pipeline.schedule == TRANSPOSED:
            on_device = transposed_program(layout, microbatches, remat)
        else:
            on_device = scheduled_program(layout, self.schedule(microbatches), remat)

        def means(params: Vectors, batches: Batch) -> tuple[Any, Vectors]:
            loss, grads = on_device(params, batches)
            # all devices of `tensor`, but only the last of `stage` have the loss
            names = replicas(layout.axes)
            loss = jax.lax.psum(loss, (*names, "stage")) / jax.lax.axis_size(names)
            return loss, all_reduce_grads(layout, self.model, grads)

        return jax.jit(
            jax.shard_map(
                means,
                mesh=layout.axes,
                in_specs=(SHARDED, spec),
                out_specs=(REPLICATED, SHARDED),
                check_vma=False,  # all sums are written out in gradients.py
            )
        )


class Learner(NamedTuple):
    """A model and its optimizer."""

    model: Tensor
    layout: StageLayout  # of the params
    states: StageLayout  # of the optimizer's state
    optimizer: Optimizer


def compile_update(
    learner: Learner, clip: float
) -> Callable[[Vectors, Vectors, Vectors], tuple[Vectors, Vectors]]:
    """Return the compiled update of params and state; each device updates its parts.

    Args:
      learner: The model, the layouts and the optimizer.
      clip: Largest norm of the gradients; 0 does not clip.

    Returns:
      (gradients, state, params) -> params, state.
    """
    layout = learner.layout

    def update(grads: Vectors, state: Vectors, params: Vectors) -> tuple[Any, Any]:
        if clip:
            grads = clip_by_norm(layout, grads, clip)
        step = partial(optimizer_step, learner, grads)
        # order matters: with params first XLA fuses differently, which changes rounding
        state, params = apply_to_parts(layout.parts, step, (state, params))
        return params, state

    return jax.jit(
        jax.shard_map(
            update,
            mesh=layout.axes,
            in_specs=(SHARDED, learner.states.spec, SHARDED),
            out_specs=(SHARDED, learner.states.spec),
            check_vma=False,
        ),
        donate_argnums=(0, 1),  # not params, which the previous Step may still read
    )


def optimizer_step(
    learner: Learner, grads: Vectors, part: StagePart, memory: tuple[Vectors, Vectors]
) -> tuple[Vectors, Vectors]:
    """OptimizerStep: update the optimizer's state and the params of one part.

    Args:
      learner: The model, the layouts and the optimizer.
      grads: Gradients of the params.
      part: The part.
      memory: Optimizer state and params.
    """
    state, params = memory
    params_at, state_at = learner.layout.start(part), learner.states.start(part)
    packed_state = learner.states.packings[part.number]
    part_grads = read(grads, part.params, params_at)
    part_params = read(params, part.params, params_at)
    part_state = read(state, packed_state, state_at)
    replicas, full = learner.states.replicas, part_params
    if replicas > 1:  # ZeRO: a replica updates its slices, then all gather them
        part_grads = own_slices(part_grads, replicas)
        part_params = own_slices(part_params, replicas)
    updates, part_state = learner.optimizer.update(part_grads, part_state, part_params)
    part_params = optax.apply_updates(part_params, updates)
    if replicas > 1:
        part_params = gather_slices(part_params, full)
    params = write(params, part.params, part_params, params_at)
    return write(state, packed_state, part_state, state_at), params


def gathered_bytes(learner: Learner) -> float:
    """Return the mean bytes that a device sends to gather sliced params by rings."""
    replicas = learner.states.replicas
    slices = [
        leaf.dtype.itemsize * -(-leaf.size // replicas)
        for part in learner.layout.parts
        for leaf in jax.tree.leaves(part.params.shapes)
    ]
    return (replicas - 1) * sum(slices) / learner.layout.axes.shape["stage"]


def bytes_sent(compiled: jax.stages.Compiled, schedule: Schedule) -> dict[str, float]:
    """Return the mean bytes that a device sends in a step by rings, for each axis.

    axis       collectives                                  executions in a step
    tensor     of the layers                                per microbatch, on one stage
    sequence   keys and values of ring attention, grads     per microbatch, on one stage
    stage      activations and gradients                    per tick with a receive
    data       gradients, norms, params of several parts    1

    The collectives are read from XLA's text, their executions from the schedule.
    """
    table = instructions(schedule)

    def per_microbatch(nbytes: float) -> float:
        """Return mean bytes per device of a collective that one stage executes."""
        return nbytes * schedule.microbatches / schedule.stages

    receiving_ticks = [
        int(np.count_nonzero((column[..., index] >= 0).any(axis=1)))
        for column in (table.recv_activations, table.recv_gradients)
        for index in directions_of(column)
        if DIRECTIONS[index]  # a message from a stage to itself is not sent
    ]
    nbytes = {"tensor": 0.0, "stage": 0.0, "data": 0.0}
    for collective in collectives(compiled.as_text() or ""):
        sent = ring_bytes(collective)
        if COMPUTE_SCOPE in collective.op_name:
            if collective.kind == "collective-permute":  # ring attention
                rounds = collective.times / len(table.piece)  # per tick
                ring = per_microbatch(sent * rounds)
                nbytes[RING] = nbytes.get(RING, 0.0) + ring
            else:
                nbytes["tensor"] += per_microbatch(sent)
        elif SEND_SCOPE in collective.op_name:
            nbytes["stage"] += sent * sum(receiving_ticks) / len(receiving_ticks)
        else:
            nbytes["data"] += sent
    return nbytes
