"""The instructions of a pipeline stage, with names as in ShallowSpeed's pipe.py.

    zero_grad             empty buffers, gradients of zero
    load_mubatch          the examples of a microbatch
    forward               the output of a part; saves activations for the backward
    backward_grad_acc     a piece of a backward: adds to the gradients of the params
    send_activations      to the next stage       recv_activations  into a slot
    send_input_grad       to the stage before     recv_output_grad  into a slot

pipeline.py executes them in the order of a schedule. All stages run one program, where
a send and the neighbour's receive are one ppermute: a send returns what arrives.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dml.strategies.hybrid.layout import Layout
from dml.strategies.hybrid.pieces import Piece, Traced
from dml.wire.mesh.packed import (
    Vectors,
    add,
    largest,
    packing,
    read,
    slot,
    total,
    write,
    zeros,
)
from dml.wire.slots import Instructions, slots_of

Weights = tuple[Vectors, Mapping[str, Any]]  # a part's params: vectors, first index


class InFlight(NamedTuple):
    """The memory of one device while a schedule is executed."""

    activations: Vectors  # received, slot by slot
    gradients: Vectors  # received, slot by slot
    saved: Vectors  # saved activations, slot by slot
    output: Vectors  # activations to be sent
    input_grad: Vectors  # gradient to be sent, or incoming gradient of the next piece
    loss: Any
    grads: Vectors  # of the params
    # in flight with PipeDream only, where updates are instructions as well
    params: Vectors = {}
    state: Vectors = {}
    versions: Vectors = {}  # of params, in the slots of saved


class Program(NamedTuple):
    """The parts and slots of a pipeline."""

    layout: Layout
    parts: list[Traced]
    table: Instructions
    microbatches: int  # loss and gradients are means over them

    @property
    def message(self) -> dict[str, int]:
        """Lengths of the largest message."""
        return largest(one.output.lengths for part in self.parts for one in part.pieces)

    def saved(self, stage: int) -> dict[str, int]:
        """Lengths of a slot of saved activations: of the stage's largest part."""
        return largest(one.saved for one in self.parts if one.part.stage == stage)


def zero_grad(program: Program, params: Vectors) -> InFlight:
    """Return empty buffers with the slots of the fullest stage."""
    table, message = program.table, program.message
    slots = enumerate(table.saved.max(axis=0) + 1)
    saved = largest(slot(int(count), program.saved(stage)) for stage, count in slots)
    return InFlight(
        zeros(message, slots_of(table.activations)),
        zeros(message, slots_of(table.gradients)),
        zeros(saved),
        zeros(message),
        zeros(message),
        jnp.float32(0),
        jax.tree.map(jnp.zeros_like, params),
    )


def load_mubatch(batches: Any, now: Instructions) -> Any:
    """LoadMuBatchInput, LoadMuBatchTarget: return the examples of this tick."""
    return jax.tree.map(lambda leaf: leaf[now.microbatch], batches)


def forward(
    program: Program,
    batches: Any,
    part: Traced,
    weights: Weights,
    now: Instructions,
    memory: InFlight,
) -> InFlight:
    """Forward: compute a part's output, and save activations for the backward."""
    batch = load_mubatch(batches, now)
    activations: Any = None
    if part.number:
        sender = program.parts[part.number - 1]
        at = slot(now.activations, program.message)
        activations = read(memory.activations, sender.output, at)
    saved, at = memory.saved, slot(now.saved, program.saved(part.part.stage))
    for piece in part.pieces:
        params = read_params(part, piece, weights)
        activations, leaves = piece.forward(params, activations, batch)
        saved = write(saved, piece.saved, leaves, at)
        at = total([at, piece.saved.lengths])
    memory = memory._replace(saved=saved)
    if part.number == len(program.parts) - 1:
        return memory._replace(loss=memory.loss + activations / program.microbatches)
    return memory._replace(output=write(memory.output, part.output, activations))


def backward_grad_acc(
    program: Program,
    part: Traced,
    number: int,
    weights: Weights,
    now: Instructions,
    memory: InFlight,
) -> InFlight:
    """BackwardGradAcc: add the gradients of one piece; number 0 is the last piece."""
    before, piece = part.pieces[: -1 - number], part.pieces[-1 - number]
    grad: Any = jnp.float32(1 / program.microbatches)  # of the loss
    if number:
        grad = read(memory.input_grad, piece.output)
    elif part.number < len(program.parts) - 1:
        grad = read(
            memory.gradients, piece.output, slot(now.gradients, program.message)
        )
    first = slot(now.saved, program.saved(part.part.stage))
    at = total([first, *(other.saved.lengths for other in before)])
    params = read_params(part, piece, weights)
    saved = read(memory.saved, piece.saved, at)
    grads, grad = piece.backward(params, saved, grad)
    mine, start = part.part.params.pick(piece.names), program.layout.start(part.part)
    return memory._replace(
        grads=add(memory.grads, mine, grads, start),
        input_grad=write(memory.input_grad, packing(grad), grad),
    )


def read_params(part: Traced, piece: Piece, weights: Weights) -> Any:
    """Return the params of a piece."""
    vectors, start = weights
    return read(vectors, part.part.params.pick(piece.names), start)


def send_activations(memory: InFlight) -> Vectors:
    """SendActivations: return what the stage before sends to this one."""
    return shifted(memory.output, 1)


def recv_activations(
    received: Vectors, now: Instructions, memory: InFlight
) -> InFlight:
    """RecvActivations: put received activations into their slot."""
    return memory._replace(
        activations=put(received, now.recv_activations, memory.activations)
    )


def send_input_grad(memory: InFlight) -> Vectors:
    """SendInputGrad: return what the next stage sends to this one."""
    return shifted(memory.input_grad, -1)


def recv_output_grad(
    received: Vectors, now: Instructions, memory: InFlight
) -> InFlight:
    """RecvOutputGrad: put a received gradient into its slot."""
    return memory._replace(
        gradients=put(received, now.recv_gradients, memory.gradients)
    )


def shifted(vectors: Vectors, by: int) -> Vectors:
    """Return the vectors of the stage that is `by` stages before this one."""
    stages = jax.lax.axis_size("stage")
    ring = [(stage, (stage + by) % stages) for stage in range(stages)]
    return jax.tree.map(lambda one: jax.lax.ppermute(one, "stage", ring), vectors)


def put(vectors: Vectors, number: Any, slots: Vectors) -> Vectors:
    """Return the slots with vectors in the slot of this number."""
    return {
        dtype: jax.lax.dynamic_update_slice(slots[dtype], one, (number * one.size,))
        for dtype, one in vectors.items()
    }
