"""Execution of any schedule of wire/plans/pipeline by one program on all devices.

    tick      0  1  2  3  4  5  6  7  8  9       1f1b. F: forward of a microbatch,
    stage 0   F0 F1 .  .  B0 B0 F2 B1 B1 F3      B: backward_grad_acc of one of two
    stage 1   .  F0 B0 B0 F1 B1 B1 F2 B2 B2      pieces. A digit is a microbatch.

In every tick each stage computes by its column of the schedule. Then the stages send
activations to the next stage, and gradients to the previous stage. The program is a
loop over ticks, so its size depends on the number of parts, not of microbatches.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dml.strategies.hybrid import instructions
from dml.strategies.hybrid.instructions import (
    InFlight,
    Program,
    send_recv_activations,
    send_recv_gradients,
)
from dml.strategies.hybrid.layout import StageLayout
from dml.strategies.hybrid.parts import StagePart
from dml.strategies.hybrid.pieces import trace_pieces
from dml.wire.mesh.packed import Vectors
from dml.wire.mesh.when import when
from dml.wire.plans.pipeline import slots
from dml.wire.plans.pipeline.schedules import FORWARD, Schedule
from dml.wire.plans.pipeline.slots import Instructions, directions_of

# names in JAX of the operations of a tick; programs.py counts bytes by these names
COMPUTE_SCOPE, SEND_SCOPE = "pipeline_compute", "pipeline_send"

Forward = Callable[[StagePart, Instructions, InFlight], InFlight]
Backward = Callable[[StagePart, int, Instructions, InFlight], InFlight]


def scheduled_program(
    layout: StageLayout, schedule: Schedule, remat: bool
) -> Callable[[Vectors, Any], tuple[Any, Vectors]]:
    """Return the program of a device: (params, microbatches) -> (loss, gradients).

    Args:
      layout: Layout of the params.
      schedule: The work of each stage in each tick.
      remat: Whether a piece saves only its input.
    """
    table = slots.instructions(schedule)

    def run(params: Vectors, batches: Any) -> tuple[Any, Vectors]:
        first = jax.tree.map(lambda leaf: leaf[0], batches)
        pieces = trace_pieces(layout.parts, first, remat, schedule.split)
        program = Program(layout, pieces, table, batches, schedule.microbatches)

        def forward(part: StagePart, now: Instructions, memory: InFlight) -> InFlight:
            weights = params, layout.start(part)
            return instructions.forward(program, part, weights, now, memory)

        def backward(
            part: StagePart, piece: int, now: Instructions, memory: InFlight
        ) -> InFlight:
            weights = params, layout.start(part)
            if not schedule.split:
                index = len(part.pieces) - piece  # from the last to 0
                return instructions.backward_grad_acc(
                    program, part, index, weights, now, memory
                )
            is_input = piece == schedule.sending_piece
            compute = (
                instructions.backward_input
                if is_input
                else instructions.backward_weight_acc
            )
            return compute(program, part, weights, now, memory)

        execute_tick = partial(tick, layout.parts, forward, backward, table)
        start = instructions.zero_grad(program, params)
        rows = jax.tree.map(jnp.asarray, table)
        memory, _ = jax.lax.scan(execute_tick, start, rows)
        return memory.loss[0], memory.grads

    return run


def tick(
    parts: Sequence[StagePart],
    forward: Forward,
    backward: Backward,
    table: Instructions,
    memory: InFlight,
    row: Instructions,
) -> tuple[InFlight, None]:
    """Execute one tick on all stages: compute, then send and receive.

    Args:
      parts: Parts of the model.
      forward: (part, instructions of this stage, memory) -> memory.
      backward: (part, piece of the backward, 1 or more, instructions of this stage,
        memory) -> memory.
      table: Instructions of all ticks, of which the pieces and directions are read.
      memory: Memory of the device.
      row: Instructions of all stages in this tick.
    """
    stage = jax.lax.axis_index("stage")
    now = Instructions(*(column[stage] for column in row))

    def is_due(part: StagePart, piece: int) -> Any:
        is_active = (stage == part.stage) & (now.round == part.round)
        return is_active & (now.piece == piece)

    # order matters: XLA would copy all of `saved` if it were read before it is written
    with jax.named_scope(COMPUTE_SCOPE):
        for part in parts:
            memory = when(is_due(part, FORWARD), partial(forward, part, now), memory)
        for part in parts:
            for piece in range(FORWARD + 1, int(table.piece.max()) + 1):
                due = is_due(part, piece)
                memory = when(due, partial(backward, part, piece, now), memory)

    def send(memory: InFlight) -> InFlight:
        """Send and receive; if any stage receives, all stages call ppermute."""
        for sent, received, send_recv in (
            (table.recv_activations, row.recv_activations, send_recv_activations),
            (table.recv_gradients, row.recv_gradients, send_recv_gradients),
        ):
            for direction in directions_of(sent):
                any_receives = (received[:, direction] >= 0).any()
                memory = when(any_receives, partial(send_recv, direction, now), memory)
        return memory

    # order matters: outside of this loop XLA would send activations before a backward,
    # which would wait for the forward of another stage
    with jax.named_scope(SEND_SCOPE):
        received = row.recv_activations, row.recv_gradients
        any_receives = jnp.any(jnp.stack(received) >= 0)
        return when(any_receives, send, memory), None
