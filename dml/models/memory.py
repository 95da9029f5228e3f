"""Memory of a transformer by plan: bytes on each device, by formula.

    parameters │ gradients │ state │ activations          one device of stage k
    └─ over tensor, stage ──┘        └─ of the microbatches in flight there
       (and over data, by ZeRO)         1f1b: min(M, K - k) of them, gpipe: all M

Stage 0 stores the embedding, the last stage the head with a copy of the token table. A
Rule has the bytes of one token's activations, for width D, H heads and L positions: per
unit of width (`whole` on every device of tensor, `cut` divided over them) and per
attention weight (H·L for each token).
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
      stream: Bytes per unit of D of a block's input; with remat, only this is saved.
      whole: Bytes per unit of D of norms and of dropout masks.
      cut: Bytes per unit of D of queries, keys, values, mixed and hidden (4 D).
      attention: Bytes per attention weight.
      embedded: Bytes per unit of D that the embedding saves.
      head: Bytes per unit of D that the head's norm and the loss save.
      words: Bytes per word of the vocabulary of scores and probabilities.
      back: Temporary bytes per unit of D in a block's backward pass.
      back_attention: Temporary bytes per attention weight in a block's backward pass.
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
    parameter=2,
    gradient=2,
    state=12,
    stream=2,
    whole=10,
    cut=24,
    attention=5,
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
    parameter=4,
    gradient=4,
    state=8,
    stream=4,
    whole=32,
    cut=64,
    attention=12,
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
    """Expected bytes of a compiled step on one device."""

    arguments: int  # params, optimizer state and batch
    temporary: int  # activations and gradients


def checked(shape: Shape, plan: Plan) -> Plan:
    """Return the plan if it fits the transformer; raise BadInput otherwise."""
    if min(plan[:5]) < 1:
        raise BadInput(f"expected sizes of at least 1, got {plan}; correct them")
    if shape.heads % plan.tensor:
        raise BadInput(
            f"expected heads divisible by tensor={plan.tensor}, got {shape.heads}; "
            f"pass a size of tensor that divides {shape.heads}"
        )
    if plan.stage > shape.layers:
        raise BadInput(
            f"expected a block or more per stage, got {shape.layers} blocks for "
            f"{plan.stage} stages; pass at most stage:{shape.layers}"
        )
    if plan.schedule not in IN_FLIGHT or plan.zero not in range(4):
        raise BadInput(
            f"expected a schedule of {', '.join(IN_FLIGHT)} and zero of 0 to 3, got "
            f"{plan.schedule!r} and {plan.zero}; pass one of them"
        )
    return plan


def block(shape: Shape, tensor: int = 1) -> int:
    """Return the number of a block's parameters on one of `tensor` devices."""
    width = shape.width
    cut = 12 * width**2 + 7 * width  # kernels; biases of qkv and up
    return cut // tensor + 6 * width  # biases of out and down, two norms


def table(shape: Shape, tensor: int = 1) -> int:
    """Return the number of the token table's parameters, padded to equal shares."""
    return -(-shape.vocabulary // tensor) * shape.width


def head(shape: Shape, causal: bool, tensor: int = 1) -> int:
    """Return the number of the head's parameters, without the token table."""
    norm, dense = 2 * shape.width, shape.width**2 + shape.width
    bias = -(-shape.vocabulary // tensor)
    return norm if causal else norm + dense + norm + bias


def parameters(shape: Shape, causal: bool) -> int:
    """Return the number of all parameters in `transformer.shapes`."""
    embedding = table(shape) + shape.length * shape.width
    return embedding + shape.layers * block(shape) + head(shape, causal)


def blocks(layers: int, stages: int, stage: int) -> int:
    """Return the number of blocks of a stage; the first stages have one more."""
    return layers // stages + (stage < layers % stages)


def on_stage(shape: Shape, causal: bool, plan: Plan, stage: int) -> int:
    """Return the number of parameters on a device of a stage, before ZeRO.

    Args:
      shape: Sizes of the transformer.
      causal: Whether the network is GPT, not BERT.
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
      causal: Whether the network is GPT, not BERT.
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
    """Return the bytes on the fullest device, which is in the first or last stage.

    Stages between have no more blocks than the first, and fewer microbatches in flight.

    Args:
      shape: Sizes of the transformer.
      causal: Whether the network is GPT, not BERT.
      plan: The division over devices.
      rule: Bytes of a parameter and of activations.
    """
    ends = {0, plan.stage - 1}
    bytes_of = [
        device_bytes(shape, causal, plan, stage, rule) for stage in sorted(ends)
    ]
    return max(bytes_of, key=lambda each: each.total)


def activations(shape: Shape, plan: Plan, stage: int, rule: Rule = MIXED) -> int:
    """Return the peak bytes of activations on a device of a stage.

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
    saved_by_block = rule.stream * stream if plan.remat else inside
    saved = blocks(shape.layers, plan.stage, stage) * saved_by_block
    if stage == 0:
        saved += rule.embedded * stream
    # temporary memory of one microbatch: of a block's backward pass, or of the loss
    temporary = inside * plan.remat + rule.back * stream + rule.back_attention * square
    if stage == plan.stage - 1:
        words = rule.words * -(-shape.vocabulary // plan.tensor)
        temporary = max(temporary, rule.head * stream + words)
    tokens = plan.microbatch * shape.length
    in_flight = IN_FLIGHT[plan.schedule](plan, stage)
    return math.ceil(tokens * (in_flight * saved + temporary))


def program(shape: Shape, causal: bool, batch: int, remat: bool) -> Expected:
    """Return the expected bytes of a compiled step: gradient, Adam, one device.

    The gradients of one block exist at a time: if Adam is in the program, XLA updates
    each leaf as soon as its gradient is computed.

    Args:
      shape: Sizes of the transformer.
      causal: Whether the network is GPT, not BERT.
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
