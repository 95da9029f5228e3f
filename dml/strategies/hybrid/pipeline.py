"""Execution of any schedule of wire/pipelines.py, by one program on all devices.

    tick      0  1  2  3  4  5  6  7  8  9       F: forward   B: backward_grad_acc
    stage 0   F0 F1 .  .  B0 B0 F2 B1 B1 .       in ticks of a piece each
    stage 1   .  F0 B0 B0 F1 B1 B1 .  F2 B2      1f1b; a digit is a microbatch

In every tick each stage computes by its column of the schedule. Then the stages send
activations to the next stage, and gradients to the stage before. The program is a loop
over ticks: its size depends on the number of parts, not of microbatches.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dml.strategies.hybrid.instructions import (
    InFlight,
    Program,
    backward_grad_acc,
    forward,
    recv_activations,
    recv_output_grad,
    send_activations,
    send_input_grad,
    zero_grad,
)
from dml.strategies.hybrid.layout import Layout
from dml.strategies.hybrid.pieces import Traced, traced
from dml.wire.mesh.packed import Vectors
from dml.wire.mesh.when import when
from dml.wire.pipelines import FORWARD, Schedule
from dml.wire.slots import Instructions, instructions

PART, TRAVEL = "part", "travel"  # scopes, by which programs.py counts words

Forward = Callable[[Traced, Instructions, InFlight], InFlight]
Backward = Callable[[Traced, int, Instructions, InFlight], InFlight]


def execute(
    layout: Layout, schedule: Schedule, remat: bool
) -> Callable[[Vectors, Any], tuple[Any, Vectors]]:
    """Return a function of a device's params and microbatches: loss and gradients."""
    table = instructions(schedule)

    def run(params: Vectors, batches: Any) -> tuple[Any, Vectors]:
        one = jax.tree.map(lambda leaf: leaf[0], batches)
        parts = traced(layout.parts, one, remat)
        program = Program(layout, parts, table, schedule.microbatches)

        def do_forward(part: Traced, now: Instructions, memory: InFlight) -> InFlight:
            weights = params, layout.start(part.part)
            return forward(program, batches, part, weights, now, memory)

        def do_backward(
            part: Traced, number: int, now: Instructions, memory: InFlight
        ) -> InFlight:
            weights = params, layout.start(part.part)
            return backward_grad_acc(program, part, number, weights, now, memory)

        memory, _ = jax.lax.scan(
            partial(tick, program, do_forward, do_backward),
            zero_grad(program, params),
            jax.tree.map(jnp.asarray, table),
        )
        return memory.loss, memory.grads

    return run


def tick(
    program: Program,
    forward: Forward,
    backward: Backward,
    memory: InFlight,
    row: Instructions,
) -> tuple[InFlight, None]:
    """Execute one tick on all stages: compute, send and receive."""
    stage = jax.lax.axis_index("stage")
    now = Instructions(*(column[stage] for column in row))

    def is_due(part: Traced, piece: int) -> Any:
        here = (stage == part.part.stage) & (now.round == part.part.round)
        return here & (now.piece == piece)

    # order matters: XLA would copy all of `saved` if it were read before it is written
    with jax.named_scope(PART):
        for part in program.parts:
            memory = when(is_due(part, FORWARD), partial(forward, part, now), memory)
        for part in program.parts:
            for number in range(len(part.pieces)):
                step = partial(backward, part, number, now)
                memory = when(is_due(part, 1 + number), step, memory)

    def exchange_activations(memory: InFlight) -> InFlight:
        receive = partial(recv_activations, send_activations(memory), now)
        return when(now.recv_activations >= 0, receive, memory)

    def exchange_gradients(memory: InFlight) -> InFlight:
        receive = partial(recv_output_grad, send_input_grad(memory), now)
        return when(now.recv_gradients >= 0, receive, memory)

    # all stages take part if any of them receives
    with jax.named_scope(TRAVEL):
        if len(program.parts) > 1:
            anywhere = (row.recv_activations >= 0).any()
            memory = when(anywhere, exchange_activations, memory)
            anywhere = (row.recv_gradients >= 0).any()
            memory = when(anywhere, exchange_gradients, memory)
    return memory, None
