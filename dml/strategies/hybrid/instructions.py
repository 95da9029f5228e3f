"""The instructions of a pipeline stage, with names as in ShallowSpeed's pipe.py.

    zero_grad               empty buffers, and gradients of zero
    load_mubatch            the examples of a microbatch
    forward                 a part's output; saves activations for the backward
    backward_grad_acc       a piece of a backward: adds to the gradients of params
    send_recv_activations   to the next stage, and from the stage before
    send_recv_gradients     to the stage before, and from the next stage

pipeline.py executes them in the order of a schedule. All stages run one program, where
a send and the receive of the neighbour are one ppermute.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dml.strategies.hybrid.layout import Layout
from dml.strategies.hybrid.parts import Part
from dml.strategies.hybrid.pieces import Piece
from dml.wire.mesh import packed
from dml.wire.mesh.packed import Lengths, Vectors, packing, slot
from dml.wire.mesh.when import when
from dml.wire.plans.slots import Instructions, slot_count

Weights = tuple[Vectors, Lengths]  # vectors with a part's params, and its first index


class InFlight(NamedTuple):
    """The memory of one device while a schedule is executed."""

    activations: Vectors  # received, slot by slot
    gradients: Vectors  # received, slot by slot
    saved: Vectors  # saved activations, slot by slot
    output: Vectors  # activations to be sent
    input_grad: Vectors  # gradient to be sent, or incoming gradient of the next piece
    loss: Any  # a vector of one, so that all fields are vectors
    grads: Vectors  # of the params
    # of PipeDream only, which updates params while microbatches are in flight
    params: Vectors = {}
    state: Vectors = {}
    versions: Vectors = {}  # of params, in the slots of saved


class Program(NamedTuple):
    """A schedule and the data that its instructions read; inside shard_map."""

    layout: Layout
    pieces: list[list[Piece]]  # of each part
    table: Instructions
    batches: Any  # microbatches on the first axis
    microbatches: int  # their number in the means of loss and gradients

    @property
    def message(self) -> Lengths:
        """Lengths of the largest message."""
        outputs = [piece.output for part in self.pieces for piece in part]
        return packed.largest(packing(output).lengths for output in outputs)

    def saved(self, stage: int) -> Lengths:
        """Lengths of a slot of saved activations: of the stage's largest part."""
        parts = [part for part in self.layout.parts if part.stage == stage]
        shapes = [[piece.saved for piece in self.pieces[part.number]] for part in parts]
        return packed.largest(packing(saved).lengths for saved in shapes)


def zero_grad(program: Program, params: Vectors) -> InFlight:
    """ZeroGrad: return empty buffers with the slots of the fullest stage."""
    table, message = program.table, program.message
    saved = [
        slot(int(count), program.saved(stage))
        for stage, count in enumerate(table.saved.max(axis=0) + 1)
    ]
    return InFlight(
        activations=packed.zeros(message, slot_count(table.activations)),
        gradients=packed.zeros(message, slot_count(table.gradients)),
        saved=packed.zeros(packed.largest(saved)),
        output=packed.zeros(message),
        input_grad=packed.zeros(message),
        loss=jnp.zeros(1),
        grads=jax.tree.map(jnp.zeros_like, params),
    )


def load_mubatch(program: Program, now: Instructions) -> Any:
    """LoadMuBatchInput, LoadMuBatchTarget: return the examples of a microbatch."""
    return jax.tree.map(lambda leaf: leaf[now.microbatch], program.batches)


def forward(
    program: Program, part: Part, weights: Weights, now: Instructions, memory: InFlight
) -> InFlight:
    """Forward: compute a part's output, and save activations for the backward.

    Args:
      program: The schedule and its data.
      part: The part.
      weights: Vectors with the part's params, and its first index.
      now: Row of the schedule, of this stage.
      memory: Memory of the device.
    """
    batch, pieces = load_mubatch(program, now), program.pieces[part.number]
    activations: Any = None
    if part.number:
        sent = packing(program.pieces[part.number - 1][-1].output)
        at = slot(now.activations, program.message)
        activations = packed.read(memory.activations, sent, at)
    layout, saved = packing([piece.saved for piece in pieces]), memory.saved
    at = slot(now.saved, program.saved(part.stage))
    for number, piece in enumerate(pieces):
        params = packed.read(weights[0], part.params.pick(piece.names), weights[1])
        activations, leaves = piece.forward(params, activations, batch)
        saved = packed.write(saved, layout.entry(number), leaves, at)
    memory = memory._replace(saved=saved)
    if part is program.layout.parts[-1]:
        return memory._replace(loss=memory.loss + activations / program.microbatches)
    output = packed.write(memory.output, packing(activations), activations)
    return memory._replace(output=output)


def backward_grad_acc(
    program: Program,
    part: Part,
    number: int,
    weights: Weights,
    now: Instructions,
    memory: InFlight,
) -> InFlight:
    """BackwardGradAcc: the backward of one piece; adds to the gradients of params.

    Args:
      program: The schedule and its data.
      part: The part.
      number: Number of the piece in the part.
      weights: Vectors with the part's params, and its first index.
      now: Row of the schedule, of this stage.
      memory: Memory of the device.
    """
    pieces = program.pieces[part.number]
    piece, output = pieces[number], packing(pieces[number].output)
    if number < len(pieces) - 1:
        grad = packed.read(memory.input_grad, output)
    elif part is program.layout.parts[-1]:
        grad = jnp.float32(1 / program.microbatches)  # of the loss
    else:
        at = slot(now.gradients, program.message)
        grad = packed.read(memory.gradients, output, at)
    params = part.params.pick(piece.names)
    layout = packing([piece.saved for piece in pieces]).entry(number)
    at = slot(now.saved, program.saved(part.stage))
    grads, grad = piece.backward(
        packed.read(weights[0], params, weights[1]),
        packed.read(memory.saved, layout, at),
        grad,
    )
    return memory._replace(
        grads=packed.add(memory.grads, params, grads, program.layout.start(part)),
        input_grad=packed.write(memory.input_grad, packing(grad), grad),
    )


def send_recv_activations(now: Instructions, memory: InFlight) -> InFlight:
    """SendActivations to the next stage, RecvActivations from the stage before."""
    number, received = now.recv_activations, shifted(memory.output, 1)
    put = partial(packed.put, number, received)
    return memory._replace(activations=when(number >= 0, put, memory.activations))


def send_recv_gradients(now: Instructions, memory: InFlight) -> InFlight:
    """SendInputGrad to the stage before, RecvOutputGrad from the next stage."""
    number, received = now.recv_gradients, shifted(memory.input_grad, -1)
    put = partial(packed.put, number, received)
    return memory._replace(gradients=when(number >= 0, put, memory.gradients))


def shifted(vectors: Vectors, by: int) -> Vectors:
    """Return the vectors of the stage that is `by` stages before this one."""
    stages = jax.lax.axis_size("stage")
    ring = [(stage, (stage + by) % stages) for stage in range(stages)]
    return jax.tree.map(lambda vector: jax.lax.ppermute(vector, "stage", ring), vectors)
