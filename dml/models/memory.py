"""Memory of a transformer by plan: bytes on each device, by formula.

    parameters │ gradients │ state │ activations          one device of stage k
    └─ over tensor, stage ──┘        └─ of the microbatches in flight there
       (and over data, by ZeRO)         1f1b: min(M, K - k) of them, gpipe: all M

Stage 0 stores the embedding, the last stage the head with a copy of the token table. A
Rule states the bytes that a token's activations take in a block of width D with H heads
and L positions: of D numbers (whole: on every device of tensor; cut: a slice on each)
and of the H·L numbers of its attention.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from dml.models.networks.transformer import Shape
from dml.types import BadInput
from dml.wire.plans.mesh import Plan


class Rule(NamedTuple):
    """Bytes of a parameter, and of a token's activations.

    Attributes:
      parameter: Bytes of a parameter.
      gradient: Bytes of its gradient.
      state: Bytes of its optimizer state.
      stream: Of D: the input of a block; with remat only this is saved.
      whole: Of D: norms, and masks of dropout.
      cut: Of D: queries, keys, values, mixed; the hidden layer (4 D).
      attention: Of H·L.
      embedded: Of D: saved by the embedding.
      head: Of D: saved by the head's norm and the loss.
      words: Of the vocabulary: scores and probabilities.
      back: Of D: temporary memory of a block's backward pass.
      back_attention: Of H·L: the same.
    """

    parameter: int
    gradient: int
    state: int
    stream: int
    whole: int
    cut: int
    attention: int
    embedded: int
    head: int
    words: int
    back: int
    back_attention: int


# Korthikanti 2022, eq. 1 to 4: sbh(10 + 24/t + 5as/ht), and sbh/t (34 + 5as/h) with
# sequence parallel; 2sbh with remat; 4sbh(1 + v/h) for the loss. Half precision, with
# dropout (masks of a byte). Adam in float32: a copy of the weights and two moments.
MIXED = Rule(
    *(2, 2, 12, 2, 10, 24, 5),
    embedded=1,
    head=4,
    words=4,
    back=0,
    back_attention=0,
)

# Our program: float32, no dropout. The backward needs 16 D + H·L numbers per token:
# the stream twice, the outputs of two norms, q, k and v, mixed, the hidden layer before
# and after gelu. XLA's CPU compiler saves 24 D + 3 H·L: also tanh (4 D), the statistics
# of both norms (4 D), softmax's numerators and a constant array of H·L.
FLOAT32 = Rule(
    *(4, 4, 8, 4, 32, 64, 12),
    embedded=4,
    head=0,
    words=8,
    back=12,
    back_attention=8,
)
RULES = {"mixed": MIXED, "float32": FLOAT32}

# (plan, stage) -> number of microbatches whose activations are saved
IN_FLIGHT: dict[str, Callable[[Plan, int], int]] = {
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
    """Bytes that a compiled step of one device is expected to take."""

    arguments: int  # params, state, the batch
    temporary: int


def checked(shape: Shape, plan: Plan) -> Plan:
    """Return the plan if it fits the transformer; raise BadInput otherwise."""
    if min(plan[:5]) < 1:
        raise BadInput(f"expected sizes of at least 1, got {plan}; correct them")
    if shape.heads % plan.tensor:
        raise BadInput(
            f"expected heads that {plan.tensor} devices of tensor share evenly, got "
            f"{shape.heads}; pass a tensor that divides {shape.heads}"
        )
    if plan.stage > shape.layers:
        raise BadInput(
            f"expected a block a stage, got {shape.layers} blocks for {plan.stage} "
            f"stages; pass at most stage:{shape.layers}"
        )
    if plan.schedule not in IN_FLIGHT or plan.zero not in range(4):
        raise BadInput(
            f"expected a schedule of {', '.join(IN_FLIGHT)} and zero of 0 to 3, got "
            f"{plan.schedule!r} and {plan.zero}; pass one of them"
        )
    return plan


def block(shape: Shape, tensor: int = 1) -> int:
    """Count a block's parameters on a device of tensor."""
    width = shape.width
    cut = 12 * width**2 + 7 * width  # kernels; biases of qkv and up
    return cut // tensor + 6 * width  # biases of out and down, two norms


def table(shape: Shape, tensor: int = 1) -> int:
    """Count the numbers of the token table, padded to equal shares."""
    return -(-shape.vocabulary // tensor) * shape.width


def head(shape: Shape, causal: bool, tensor: int = 1) -> int:
    """Count the head's parameters, without the table."""
    norm, dense = 2 * shape.width, shape.width**2 + shape.width
    bias = -(-shape.vocabulary // tensor)
    return norm if causal else norm + dense + norm + bias


def parameters(shape: Shape, causal: bool) -> int:
    """Count all parameters: those of `transformer.shapes`."""
    embedding = table(shape) + shape.length * shape.width
    return embedding + shape.layers * block(shape) + head(shape, causal)


def blocks(layers: int, stages: int, stage: int) -> int:
    """Return the number of blocks of a stage; the first stages have one more."""
    return layers // stages + (stage < layers % stages)


def on_stage(shape: Shape, causal: bool, plan: Plan, stage: int) -> int:
    """Count the parameters on a device of a stage, before ZeRO.

    Args:
      shape: Sizes of the transformer.
      causal: Whether it is GPT, not BERT.
      plan: The division over devices.
      stage: Number of the stage.
    """
    count = blocks(shape.layers, plan.stage, stage) * block(shape, plan.tensor)
    last = stage == plan.stage - 1
    if stage == 0:
        count += table(shape, plan.tensor) + shape.length * shape.width
    if last:
        count += head(shape, causal, plan.tensor)
        count += table(shape, plan.tensor) * (plan.stage > 1)
    return count


def device_bytes(
    shape: Shape, causal: bool, plan: Plan, stage: int, rule: Rule = MIXED
) -> DeviceBytes:
    """Return the bytes on a device of a stage.

    Args:
      shape: Sizes of the transformer.
      causal: Whether it is GPT, not BERT.
      plan: The division over devices.
      stage: Number of the stage.
      rule: Bytes of a parameter and of activations.
    """
    checked(shape, plan)
    count = on_stage(shape, causal, plan, stage)
    share = -(-count // plan.data)
    # level 3 of ZeRO gathers a block before its use
    gathered = min(count, share + block(shape, plan.tensor))
    return DeviceBytes(
        rule.parameter * (gathered if plan.zero > 2 and plan.data > 1 else count),
        rule.gradient * (share if plan.zero > 1 else count),
        rule.state * (share if plan.zero > 0 else count),
        activations(shape, plan, stage, rule),
    )


def fullest(shape: Shape, causal: bool, plan: Plan, rule: Rule = MIXED) -> DeviceBytes:
    """Return the greatest bytes on a device: of the first stage or of the last one.

    Stages between have no more blocks than the first, and fewer microbatches in flight.

    Args:
      shape: Sizes of the transformer.
      causal: Whether it is GPT, not BERT.
      plan: The division over devices.
      rule: Bytes of a parameter and of activations.
    """
    ends = {0, plan.stage - 1}
    bytes_of = [
        device_bytes(shape, causal, plan, stage, rule) for stage in sorted(ends)
    ]
    return max(bytes_of, key=lambda each: each.total)


def activations(shape: Shape, plan: Plan, stage: int, rule: Rule = MIXED) -> int:
    """Return the greatest bytes of activations on a device of the stage at once.

    Args:
      shape: Sizes of the transformer.
      plan: The division over devices.
      stage: Number of the stage.
      rule: Bytes of a token's activations.
    """
    stream = shape.width / (plan.tensor if plan.sequence else 1)
    cut = shape.width / plan.tensor
    square = shape.heads * shape.length / plan.tensor
    inside = rule.whole * stream + rule.cut * cut + rule.attention * square
    kept = rule.stream * stream if plan.remat else inside
    alive = blocks(shape.layers, plan.stage, stage) * kept
    if stage == 0:
        alive += rule.embedded * stream
    # of one microbatch: either of the loss, or of a block's backward pass
    now = inside * plan.remat + rule.back * stream + rule.back_attention * square
    if stage == plan.stage - 1:
        words = rule.words * -(-shape.vocabulary // plan.tensor)
        now = max(now, rule.head * stream + words)
    tokens = plan.microbatch * shape.length
    return math.ceil(tokens * (IN_FLIGHT[plan.schedule](plan, stage) * alive + now))


def program(shape: Shape, causal: bool, batch: int, remat: bool) -> Expected:
    """Return the expected bytes of a compiled step: gradient, Adam, one device.

    Gradients take the bytes of one block at a time: if Adam is in the program, XLA
    updates each leaf as soon as its gradient is computed.

    Args:
      shape: Sizes of the transformer.
      causal: Whether it is GPT, not BERT.
      batch: Number of examples.
      remat: Whether blocks are recomputed in the backward pass.
    """
    plan = Plan(microbatch=batch, remat=remat)
    rule, tokens = FLOAT32, batch * shape.length
    stored = (rule.parameter + rule.state) * parameters(shape, causal)
    return Expected(
        stored + 4 + 2 * 4 * tokens,  # Adam's count of steps; inputs and targets
        activations(shape, plan, 0, rule) + rule.gradient * block(shape),
    )
