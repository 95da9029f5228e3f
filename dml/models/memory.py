"""Memory of a transformer by plan: bytes on each device, by formula.

Memory of one device of stage k, for K stages and M microbatches per replica:

    parameters │ gradients │ state │ activations
    └─ divided over tensor, stage ─┘ └─ of the microbatches in flight on the stage
       and, with ZeRO, over data        1f1b: min(M, K - k), gpipe: M

Stage 0 stores the embedding, the last stage the head with a copy of the token table. A
MemoryRule has the bytes of one token's activations, for width D, H heads and L
positions: per unit of D (`replicated` on every device of the tensor axis, or `sharded`
over these devices) and per attention weight (each token has H·L of them).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from dml.models.networks.transformer import Shape
from dml.types import BadInput
from dml.wire.plans.mesh import MeshPlan


class MemoryRule(NamedTuple):
    """Bytes of a parameter, and of a token's activations.

    Attributes:
      parameter: Bytes of a parameter.
      gradient: Bytes of its gradient.
      state: Bytes of its optimizer state.
      stream: Bytes per unit of D of a block's input; with remat, only this is saved.
      replicated: Bytes per unit of D of norms and dropout masks; with sequence
        parallelism, these too are sharded.
      sharded: Bytes per unit of D of queries, keys, values, the attention output and
        the hidden layer of width 4 D.
      attention: Bytes per attention weight.
      embedding: Bytes per unit of D that the embedding saves.
      head: Bytes per unit of D that the head's norm and the loss save.
      vocabulary: Bytes of logits and probabilities per token of the vocabulary.
      backward: Temporary bytes per unit of D in a block's backward pass.
      backward_attention: Temporary bytes per attention weight in a block's backward
        pass.
    """

    parameter: int
    gradient: int
    state: int
    stream: int
    replicated: int
    sharded: int
    attention: int
    embedding: int
    head: int
    vocabulary: int
    backward: int
    backward_attention: int


# Korthikanti 2022, eq. 1 to 4: sbh(10 + 24/t + 5as/ht), and sbh/t (34 + 5as/h) with
# sequence parallel; 2sbh with remat; 4sbh(1 + v/h) for the loss. Half precision, with
# dropout (masks of a byte). Adam in float32: a copy of the weights and two moments.
MIXED = MemoryRule(
    parameter=2,
    gradient=2,
    state=12,
    stream=2,
    replicated=10,
    sharded=24,
    attention=5,
    embedding=1,
    head=4,
    vocabulary=4,
    backward=0,
    backward_attention=0,
)

# Compiled steps of `networks.transformer`: float32, no dropout. The backward pass needs
# 16 D + H·L numbers per token: the residual stream twice, the outputs of two norms, q,
# k and v, the attention output, and the hidden layer before and after gelu. XLA's CPU
# compiler saves 24 D + 3 H·L numbers: also tanh (4 D), the statistics of both norms
# (4 D), the numerators of softmax and a constant array of H·L numbers.
FLOAT32 = MemoryRule(
    parameter=4,
    gradient=4,
    state=8,
    stream=4,
    replicated=32,
    sharded=64,
    attention=12,
    embedding=4,
    head=0,
    vocabulary=8,
    backward=12,
    backward_attention=8,
)
RULES = {"mixed": MIXED, "float32": FLOAT32}

# (plan, stage) -> number of microbatches whose activations are saved
IN_FLIGHT: dict[str, Callable[[MeshPlan, int], int]] = {
    "gpipe": lambda plan, stage: plan.microbatches,
    "1f1b": lambda plan, stage: min(plan.microbatches, plan.stage - stage),
}


class DeviceBytes(NamedTuple):
    """Bytes on one device."""

    parameters: int
    gradients: int
    state: int
    activations: int

    @property
    def total(self) -> int:
        return sum(self)


class Expected(NamedTuple):
    """Expected bytes of a compiled step on one device."""

    arguments: int  # params, optimizer state and batch
    temporary: int  # activations and gradients


def check(shape: Shape, plan: MeshPlan) -> None:
    """Raise BadInput if the transformer cannot be divided by the plan."""
    if min(plan.data, plan.stage, plan.tensor, plan.microbatch, plan.microbatches) < 1:
        raise BadInput(f"expected sizes of at least 1, got {plan}; correct them")
    if shape.heads % plan.tensor:
        raise BadInput(
            f"expected heads divisible by tensor={plan.tensor}, got {shape.heads}; "
            f"pass a size of tensor that divides {shape.heads}"
        )
    if plan.stage > shape.layers:
        raise BadInput(
            f"expected at least one block per stage, got {shape.layers} blocks for "
            f"{plan.stage} stages; pass at most stage:{shape.layers}"
        )
    if plan.schedule not in IN_FLIGHT or plan.zero not in range(4):
        raise BadInput(
            f"expected a schedule of {', '.join(IN_FLIGHT)} and zero of 0 to 3, got "
            f"{plan.schedule!r} and {plan.zero}; correct them"
        )


def block_parameters(shape: Shape, tensor: int = 1) -> int:
    """Return the number of a block's parameters on one of `tensor` devices."""
    width = shape.width
    sharded = 12 * width**2 + 7 * width  # kernels; biases of qkv and up
    replicated = 6 * width  # biases of out and down; two norms
    return sharded // tensor + replicated


def table_parameters(shape: Shape, tensor: int = 1) -> int:
    """Return the number of the token table's parameters on one of `tensor` devices.

    The table is padded to equal shares.
    """
    return -(-shape.vocabulary // tensor) * shape.width


def head_parameters(shape: Shape, causal: bool, tensor: int = 1) -> int:
    """Return the number of the head's parameters on one of `tensor` devices.

    The token table, which the head shares with the embedding, is not counted.
    """
    norm, dense = 2 * shape.width, shape.width**2 + shape.width
    bias = -(-shape.vocabulary // tensor)
    return norm if causal else norm + dense + norm + bias


def parameters(shape: Shape, causal: bool) -> int:
    """Return the number of all parameters in `transformer.shapes`."""
    embedding = table_parameters(shape) + shape.length * shape.width
    return (
        embedding
        + shape.layers * block_parameters(shape)
        + head_parameters(shape, causal)
    )


def blocks(layers: int, stages: int, stage: int) -> int:
    """Return the number of blocks of a stage; the first stages have one more."""
    return layers // stages + (stage < layers % stages)


def stage_parameters(shape: Shape, causal: bool, plan: MeshPlan, stage: int) -> int:
    """Return the number of parameters on a device of a stage, before ZeRO.

    Args:
      shape: Sizes of the transformer.
      causal: Whether the network is GPT, not BERT.
      plan: The division over devices.
      stage: Number of the stage.
    """
    count = block_parameters(shape, plan.tensor)
    count *= blocks(shape.layers, plan.stage, stage)
    if stage == 0:
        count += table_parameters(shape, plan.tensor) + shape.length * shape.width
    if stage == plan.stage - 1:
        count += head_parameters(shape, causal, plan.tensor)
        count += table_parameters(shape, plan.tensor) * (plan.stage > 1)
    return count


def device_bytes(
    shape: Shape, causal: bool, plan: MeshPlan, stage: int, rule: MemoryRule = MIXED
) -> DeviceBytes:
    """Return the bytes on a device of a stage.

    Args:
      shape: Sizes of the transformer.
      causal: Whether the network is GPT, not BERT.
      plan: The division over devices.
      stage: Number of the stage.
      rule: Bytes of a parameter and of activations.
    """
    check(shape, plan)
    count = stage_parameters(shape, causal, plan, stage)
    share = -(-count // plan.data)
    # level 3 of ZeRO gathers a block before its use
    gathered = min(count, share + block_parameters(shape, plan.tensor))
    return DeviceBytes(
        rule.parameter * (gathered if plan.zero > 2 and plan.data > 1 else count),
        rule.gradient * (share if plan.zero > 1 else count),
        rule.state * (share if plan.zero > 0 else count),
        activations(shape, plan, stage, rule),
    )


def fullest_device(
    shape: Shape, causal: bool, plan: MeshPlan, rule: MemoryRule = MIXED
) -> DeviceBytes:
    """Return the bytes on the fullest device, which is in the first or last stage.

    The other stages have no more blocks than the first, and no more microbatches in
    flight.

    Args:
      shape: Sizes of the transformer.
      causal: Whether the network is GPT, not BERT.
      plan: The division over devices.
      rule: Bytes of a parameter and of activations.
    """
    devices = [
        device_bytes(shape, causal, plan, stage, rule)
        for stage in sorted({0, plan.stage - 1})
    ]
    return max(devices, key=lambda device: device.total)


def activations(
    shape: Shape, plan: MeshPlan, stage: int, rule: MemoryRule = MIXED
) -> int:
    """Return the peak bytes of activations on a device of a stage.

    Args:
      shape: Sizes of the transformer.
      plan: The division over devices.
      stage: Number of the stage.
      rule: Bytes of a token's activations.
    """
    stream_width = shape.width / (plan.tensor if plan.sequence else 1)
    sharded_width = shape.width / plan.tensor
    attention_weights = shape.heads * shape.length / plan.tensor  # per token
    block = (
        rule.replicated * stream_width
        + rule.sharded * sharded_width
        + rule.attention * attention_weights
    )
    saved_by_block = rule.stream * stream_width if plan.remat else block
    saved = blocks(shape.layers, plan.stage, stage) * saved_by_block
    if stage == 0:
        saved += rule.embedding * stream_width
    # temporary bytes per token of one microbatch: a block's backward pass, or the loss
    temporary = (
        block * plan.remat
        + rule.backward * stream_width
        + rule.backward_attention * attention_weights
    )
    if stage == plan.stage - 1:
        logits = rule.vocabulary * -(-shape.vocabulary // plan.tensor)
        temporary = max(temporary, rule.head * stream_width + logits)
    tokens = plan.microbatch * shape.length
    in_flight = IN_FLIGHT[plan.schedule](plan, stage)
    return math.ceil(tokens * (in_flight * saved + temporary))


def step_bytes(shape: Shape, causal: bool, batch: int, remat: bool) -> Expected:
    """Return the expected bytes of a step, gradient and Adam, compiled for one device.

    Only the gradients of one block exist at any time: XLA updates each leaf as soon as
    its gradient is computed.

    Args:
      shape: Sizes of the transformer.
      causal: Whether the network is GPT, not BERT.
      batch: Number of examples.
      remat: Whether blocks are recomputed in the backward pass.
    """
    plan = MeshPlan(microbatch=batch, remat=remat)
    rule, tokens = FLOAT32, batch * shape.length
    stored = (rule.parameter + rule.state) * parameters(shape, causal)
    step_count = 4  # Adam's, an int32
    inputs_and_targets = 2 * 4 * tokens
    return Expected(
        stored + step_count + inputs_and_targets,
        activations(shape, plan, 0, rule) + rule.gradient * block_parameters(shape),
    )
