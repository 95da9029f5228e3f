"""GRADIENT: what fits where: a transformer and a plan in, bytes on each device out.

    parameters │ gradients │ state │ activations          one device of stage k
    └─ over tensor, stage ──┘        └─ of the microbatches alive there
       (and over data, by ZeRO)         1f1b: min(M, K - k) of them, gpipe: all M

Pure arithmetic. Stage 0 holds the embedding, the last one the head with a copy of the
table of tokens. What a token leaves behind in a block of width D with H heads that see
L places is told by a Rule, in bytes: of D numbers (whole: on every device of tensor;
cut: a slice on each) and of the H·L numbers of its attention.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from dml.models.networks.transformer import Shape
from dml.types import BadInput
from dml.wire.plans.mesh import Plan


class Rule(NamedTuple):
    """Bytes: the first three of a parameter, the others of a token's activations."""

    parameter: int
    gradient: int
    state: int
    stream: int  # of D: what goes into a block, all that remat keeps of it
    whole: int  # of D: norms, dropout's masks
    cut: int  # of D: queries, keys, values, mixed; the hidden layer (4 D)
    attention: int  # of H·L
    embedded: int  # of D: what embedding keeps
    head: int  # of D: what the head's norm and the loss keep
    words: int  # of the vocabulary: scores, and chances
    back: int  # of D: what a block's backward pass needs while it runs
    back_attention: int  # of H·L


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

# Our program: float32, no dropout. Its backward pass needs 16 D + H·L numbers a token:
# the stream twice, two norms' outcomes, q, k and v, mixed, the hidden layer before and
# after gelu. XLA's CPU compiler keeps 24 D + 3 H·L: also tanh (4 D), what both norms
# subtract and divide by (4 D), softmax's numerators and a constant array of H·L.
FLOAT32 = Rule(
    *(4, 4, 8, 4, 32, 64, 12),
    embedded=4,
    head=0,
    words=8,
    back=12,
    back_attention=8,
)
RULES = {"mixed": MIXED, "float32": FLOAT32}

LIVE: dict[str, Callable[[Plan, int], int]] = {  # microbatches whose activations live
    "gpipe": lambda plan, stage: plan.microbatches,
    "1f1b": lambda plan, stage: min(plan.microbatches, plan.stage - stage),
}


class Held(NamedTuple):
    """Bytes on one device."""

    parameters: int
    gradients: int
    state: int
    activations: int

    @property
    def total(self) -> int:
        return sum(self)


class Expected(NamedTuple):
    """Bytes that a compiled step of one device should take."""

    arguments: int  # params, state, the batch
    temporary: int


def checked(shape: Shape, plan: Plan) -> Plan:
    """Return the plan if the transformer can be cut so."""
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
    if plan.schedule not in LIVE or plan.zero not in range(4):
        raise BadInput(
            f"expected a schedule of {', '.join(LIVE)} and zero of 0 to 3, got "
            f"{plan.schedule!r} and {plan.zero}; pass one of them"
        )
    return plan


def block(shape: Shape, tensor: int = 1) -> int:
    """Count a block's parameters on a device of tensor."""
    width = shape.width
    cut = 12 * width**2 + 7 * width  # kernels; biases of qkv and up
    return cut // tensor + 6 * width  # biases of out and down, two norms


def table(shape: Shape, tensor: int = 1) -> int:
    """Count the numbers of the table of tokens, filled up so that all have as many."""
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
    """Say how many blocks a stage has; those that are left over go to the first."""
    return layers // stages + (stage < layers % stages)


def on_stage(shape: Shape, causal: bool, plan: Plan, stage: int) -> int:
    """Count the parameters on a device of the stage, before ZeRO cuts them."""
    count = blocks(shape.layers, plan.stage, stage) * block(shape, plan.tensor)
    last = stage == plan.stage - 1
    if stage == 0:
        count += table(shape, plan.tensor) + shape.length * shape.width
    if last:
        count += head(shape, causal, plan.tensor)
        count += table(shape, plan.tensor) * (plan.stage > 1)
    return count


def held(
    shape: Shape, causal: bool, plan: Plan, stage: int, rule: Rule = MIXED
) -> Held:
    """Return what a device of that stage holds."""
    checked(shape, plan)
    count = on_stage(shape, causal, plan, stage)
    share = -(-count // plan.data)
    # ZeRO's third level gathers a block when it is used
    gathered = min(count, share + block(shape, plan.tensor))
    return Held(
        rule.parameter * (gathered if plan.zero > 2 and plan.data > 1 else count),
        rule.gradient * (share if plan.zero > 1 else count),
        rule.state * (share if plan.zero > 0 else count),
        activations(shape, plan, stage, rule),
    )


def fullest(shape: Shape, causal: bool, plan: Plan, rule: Rule = MIXED) -> Held:
    """Return what the fullest device holds: of the first stage or of the last one.

    Those between have no more blocks than the first, and fewer microbatches alive.
    """
    ends = {0, plan.stage - 1}
    found = [held(shape, causal, plan, stage, rule) for stage in sorted(ends)]
    return max(found, key=lambda one: one.total)


def activations(shape: Shape, plan: Plan, stage: int, rule: Rule = MIXED) -> int:
    """Return the most bytes of activations that a device of the stage holds at once."""
    stream = shape.width / (plan.tensor if plan.sequence else 1)
    cut = shape.width / plan.tensor
    square = shape.heads * shape.length / plan.tensor
    inside = rule.whole * stream + rule.cut * cut + rule.attention * square
    kept = rule.stream * stream if plan.remat else inside
    alive = blocks(shape.layers, plan.stage, stage) * kept
    if stage == 0:
        alive += rule.embedded * stream
    # one microbatch's: either the loss is computed, or a block's backward pass
    now = inside * plan.remat + rule.back * stream + rule.back_attention * square
    if stage == plan.stage - 1:
        words = rule.words * -(-shape.vocabulary // plan.tensor)
        now = max(now, rule.head * stream + words)
    tokens = plan.microbatch * shape.length
    return math.ceil(tokens * (LIVE[plan.schedule](plan, stage) * alive + now))


def program(shape: Shape, causal: bool, batch: int, remat: bool) -> Expected:
    """Return what a compiled step of our own program takes: gradient, Adam, one device.

    Of the gradients only a block's are there at once: where Adam is in the program,
    XLA updates a leaf as soon as its gradient has come.
    """
    plan = Plan(microbatch=batch, remat=remat)
    rule, tokens = FLOAT32, batch * shape.length
    given = (rule.parameter + rule.state) * parameters(shape, causal)
    return Expected(
        given + 4 + 2 * 4 * tokens,  # Adam's count of steps; inputs and targets
        activations(shape, plan, 0, rule) + rule.gradient * block(shape),
    )
