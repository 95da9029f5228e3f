"""The instructions of a pipeline stage, with names as in ShallowSpeed's pipe.py.

    zero_grad               allocates buffers, and gradients of zero
    load_mubatch            reads the examples of a microbatch
    forward                 computes a part's output; saves activations for the backward
    backward_grad_acc       computes a piece of a backward; accumulates gradients
    backward_input          computes the input gradients of a part (zero bubble)
    backward_weight_acc     computes the weight gradients of a part; accumulates them
    send_recv_activations   sends to the next stage, receives from the previous stage
    send_recv_gradients     sends to the previous stage, receives from the next stage

pipeline.py executes them in the order of a schedule. All stages run one program, in
which a send and the receive of the neighbour are one ppermute.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dml.strategies.hybrid.layout import StageLayout
from dml.strategies.hybrid.parts import StagePart
from dml.strategies.hybrid.pieces import Piece
from dml.wire.mesh import packed
from dml.wire.mesh.packed import Lengths, Vectors, packing, slot
from dml.wire.mesh.when import when
from dml.wire.plans.pipeline.slots import DIRECTIONS, Instructions, slot_count

Weights = tuple[Vectors, Lengths]  # vectors with params, first index of the part


class InFlight(NamedTuple):
    """The memory of one device while a schedule is executed."""

    activations: Vectors  # received activations, in slots
    gradients: Vectors  # received gradients, in slots
    saved: Vectors  # saved activations, in slots
    output: Vectors  # activations to send
    input_grad: Vectors  # gradient to send, or incoming gradient of the next piece
    loss: Any  # a vector of one element, so that all fields are vectors
    grads: Vectors  # gradients of the params
    # only for zero-bubble schedules: values of input gradients for weight gradients
    deferred: Vectors = {}
    # only for PipeDream, which updates params while microbatches are in flight
    params: Vectors = {}
    state: Vectors = {}  # of the optimizer
    versions: Vectors = {}  # of params, in the same slots as saved activations


class Program(NamedTuple):
    """A schedule and the data that its instructions read; inside shard_map."""

    layout: StageLayout
    pieces: list[list[Piece]]  # by part
    table: Instructions
    batches: Any  # microbatches on the first axis
    microbatches: int  # number of microbatches in the means of loss and gradients

    @property
    def message(self) -> Lengths:
        """Lengths of the largest message."""
        outputs = [piece.output for part in self.pieces for piece in part]
        return packed.largest(packing(output).lengths for output in outputs)

    def saved(self, stage: int) -> Lengths:
        """Lengths of a slot of saved activations, for the largest part of a stage."""
        return self._largest(stage, lambda piece: piece.saved)

    def deferred(self, stage: int) -> Lengths:
        """Lengths of a slot of deferred values, for the largest part of a stage."""
        return self._largest(stage, lambda piece: piece.deferred)

    def _largest(self, stage: int, shapes: Callable[[Piece], Any]) -> Lengths:
        parts = [part for part in self.layout.parts if part.stage == stage]
        trees = [
            [shapes(piece) for piece in self.pieces[part.number]] for part in parts
        ]
        return packed.largest(packing(tree).lengths for tree in trees)


def zero_grad(program: Program, params: Vectors) -> InFlight:
    """ZeroGrad: return empty buffers, as long as the stage with most slots needs."""
    table, message = program.table, program.message

    def slots(table: np.ndarray, lengths: Callable[[int], Lengths]) -> Vectors:
        """Return the slots of a table; their lengths depend on the stage."""
        counts = enumerate((table.max(axis=0) + 1).tolist())
        return packed.zeros(
            packed.largest(slot(count, lengths(stage)) for stage, count in counts)
        )

    return InFlight(
        activations=packed.zeros(message, slot_count(table.activations)),
        gradients=packed.zeros(message, slot_count(table.gradients)),
        saved=slots(table.saved, program.saved),
        output=packed.zeros(message),
        input_grad=packed.zeros(message),
        loss=jnp.zeros(1),
        grads=jax.tree.map(jnp.zeros_like, params),
        deferred=slots(table.deferred, program.deferred),
    )


def load_mubatch(program: Program, now: Instructions) -> Any:
    """LoadMuBatchInput, LoadMuBatchTarget: return the examples of a microbatch."""
    return jax.tree.map(lambda leaf: leaf[now.microbatch], program.batches)


def forward(
    program: Program,
    part: StagePart,
    weights: Weights,
    now: Instructions,
    memory: InFlight,
) -> InFlight:
    """Forward: compute a part's output, and save activations for the backward.

    Args:
      program: The schedule and its data.
      part: The part.
      weights: Vectors with the part's params, and the first index of the part.
      now: Instructions of this stage in this tick.
      memory: Memory of the device.
    """
    batch, pieces = load_mubatch(program, now), program.pieces[part.number]
    activations: Any = None
    if part.number:
        sent = packing(program.pieces[part.number - 1][-1].output)
        at = slot(now.activations, program.message)
        activations = packed.read(memory.activations, sent, at)
    saved = memory.saved
    layout = packing([piece.saved for piece in pieces])
    at = slot(now.saved, program.saved(part.stage))
    for index, piece in enumerate(pieces):
        params = packed.read(weights[0], part.params.pick(piece.names), weights[1])
        activations, leaves = piece.forward(params, activations, batch)
        saved = packed.write(saved, layout.entry(index), leaves, at)
    memory = memory._replace(saved=saved)
    if part is program.layout.parts[-1]:
        return memory._replace(loss=memory.loss + activations / program.microbatches)
    output = packed.write(memory.output, packing(activations), activations)
    return memory._replace(output=output)


def backward_grad_acc(
    program: Program,
    part: StagePart,
    index: int,
    weights: Weights,
    now: Instructions,
    memory: InFlight,
) -> InFlight:
    """BackwardGradAcc: compute the backward of a piece; add to the gradients.

    Args:
      program: The schedule and its data.
      part: The part.
      index: Index of the piece in the part.
      weights: Vectors with the part's params, and the first index of the part.
      now: Instructions of this stage in this tick.
      memory: Memory of the device.
    """
    pieces = program.pieces[part.number]
    piece = pieces[index]
    output = packing(piece.output)
    if index < len(pieces) - 1:
        grad = packed.read(memory.input_grad, output)
    else:
        grad = output_grad(program, part, now, memory)
    params = part.params.pick(piece.names)
    layout = packing([piece.saved for piece in pieces]).entry(index)
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


def output_grad(
    program: Program, part: StagePart, now: Instructions, memory: InFlight
) -> Any:
    """Return the gradient of a part's output: received, or that of the loss."""
    if part is program.layout.parts[-1]:
        return jnp.float32(1 / program.microbatches)
    output = packing(program.pieces[part.number][-1].output)
    at = slot(now.gradients, program.message)
    return packed.read(memory.gradients, output, at)


def backward_input(
    program: Program,
    part: StagePart,
    weights: Weights,
    now: Instructions,
    memory: InFlight,
) -> InFlight:
    """BackwardInput: compute the gradient of a part's input; store deferred values.

    For the arguments see `forward`.
    """
    pieces = program.pieces[part.number]
    grad = output_grad(program, part, now, memory)
    saved_layout = packing([piece.saved for piece in pieces])
    deferred_layout = packing([piece.deferred for piece in pieces])
    saved_at = slot(now.saved, program.saved(part.stage))
    deferred_at = slot(now.deferred, program.deferred(part.stage))
    deferred = memory.deferred
    for index, piece in reversed([*enumerate(pieces)]):
        params = packed.read(weights[0], part.params.pick(piece.names), weights[1])
        saved = packed.read(memory.saved, saved_layout.entry(index), saved_at)
        grad, leaves = piece.input_grad(params, saved, grad)
        entry = deferred_layout.entry(index)
        deferred = packed.write(deferred, entry, leaves, deferred_at)
    memory = memory._replace(deferred=deferred)
    if part.number == 0:  # examples have no gradient
        return memory
    return memory._replace(
        input_grad=packed.write(memory.input_grad, packing(grad), grad)
    )


def backward_weight_acc(
    program: Program,
    part: StagePart,
    weights: Weights,
    now: Instructions,
    memory: InFlight,
) -> InFlight:
    """BackwardWeightAcc: compute the gradients of a part's params; add them.

    For the arguments see `forward`.
    """
    pieces = program.pieces[part.number]
    saved_layout = packing([piece.saved for piece in pieces])
    deferred_layout = packing([piece.deferred for piece in pieces])
    saved_at = slot(now.saved, program.saved(part.stage))
    deferred_at = slot(now.deferred, program.deferred(part.stage))
    total = memory.grads
    for index, piece in reversed([*enumerate(pieces)]):
        params = part.params.pick(piece.names)
        grads = piece.weight_grad(
            packed.read(weights[0], params, weights[1]),
            packed.read(memory.saved, saved_layout.entry(index), saved_at),
            packed.read(memory.deferred, deferred_layout.entry(index), deferred_at),
        )
        total = packed.add(total, params, grads, program.layout.start(part))
    return memory._replace(grads=total)


def send_recv_activations(
    direction: int, now: Instructions, memory: InFlight
) -> InFlight:
    """SendActivations to the next part, RecvActivations from the previous part.

    direction: Index in DIRECTIONS of the stages from sender to receiver.
    """
    slot_number = now.recv_activations[direction]
    received = shift(memory.output, DIRECTIONS[direction])
    put = partial(packed.put, slot_number, received)
    return memory._replace(activations=when(slot_number >= 0, put, memory.activations))


def send_recv_gradients(
    direction: int, now: Instructions, memory: InFlight
) -> InFlight:
    """SendInputGrad to the previous part, RecvOutputGrad from the next part.

    direction: Index in DIRECTIONS of the stages from sender to receiver.
    """
    slot_number = now.recv_gradients[direction]
    received = shift(memory.input_grad, DIRECTIONS[direction])
    put = partial(packed.put, slot_number, received)
    return memory._replace(gradients=when(slot_number >= 0, put, memory.gradients))


def shift(vectors: Vectors, by: int) -> Vectors:
    """Send vectors `by` stages forward in a ring; return the received vectors.

    A stage receives its own vectors if `by` is 0.
    """
    if by == 0:
        return vectors
    stages = jax.lax.axis_size("stage")
    ring = [(stage, (stage + by) % stages) for stage in range(stages)]
    return jax.tree.map(lambda vector: jax.lax.ppermute(vector, "stage", ring), vectors)
