"""Seconds of a training step, by part; the parts add up to the step.

    for each of m micro batches      products │ attention │ traffic │ kernels │ tensor │
                                     experts │ imbalance of the slowest stage
    once                             bubble: (K - 1)/v times the average of the above
                                     boundary │ data │ optimizer │ waiting

    products    2MNK flops each, on tiles of 256 x 128 in waves over the processors
    attention   scores and sums of values
    traffic     elementwise operations and softmax: bytes over the memory's bandwidth
    kernels     starts of kernels
    tensor      4 ring all-reduces of the activations in a block (6 with remat)
    experts     4 all-to-alls of the routed tokens in a block (6 with remat)
    boundary    messages between stages that are not hidden
    data        gradients and gathered parameters that are not hidden
    waiting     the slowest of n domains ends later: a fraction for each doubling of n

Products and attention are scaled by the first constant of a device, all other parts by
the second, so the sum is linear in the two.
"""

from typing import Any, NamedTuple

import numpy as np

from dml.planner.collectives import (
    all_reduce_seconds,
    gather_seconds,
    message_seconds,
)
from dml.planner.physics import NOMINAL, Constants, Physics
from dml.planner.runs import PRECISIONS, Runs

TILE = (256, 128)  # rows and columns of a tile of a matrix product
ARRAY = 128  # rows and columns of a systolic array
BUSY = 0.7  # fraction of the peak at which products hide messages


class Pass(NamedTuple):
    """Seconds of one micro batch on the average stage, by part."""

    products: Any
    attention: Any
    traffic: Any
    kernels: Any
    tensor: Any
    experts: Any

    def scaled(self, factor: Any) -> "Pass":
        """Return all parts multiplied by a factor."""
        return Pass(*(part * factor for part in self))

    def times(self, factors: "Pass") -> "Pass":
        """Return the parts, each multiplied by its own factor."""
        return Pass(*(a * b for a, b in zip(self, factors, strict=True)))

    def plus(self, other: "Pass") -> "Pass":
        """Return the sums of the parts."""
        return Pass(*(a + b for a, b in zip(self, other, strict=True)))


def parts(
    runs: Runs, physics: Physics, constants: Constants = NOMINAL
) -> dict[str, Any]:
    """Return the seconds of a step by part; fields of constants may be columns."""
    scale = Pass(constants.products, constants.products, *[constants.other] * 4)
    block, head = block_pass(runs, physics), head_pass(runs, physics)
    nominal = block.scaled(runs.layers / runs.stage).plus(head.scaled(1 / runs.stage))
    # the stage that also has the head, or the stages with one block more
    slowest = block.scaled(runs.largest_stage).plus(head.scaled(runs.even))
    average, slowest = nominal.times(scale), slowest.times(scale)
    count, one = runs.micro_batches, sum(average)
    excess = np.where(runs.stage > 1, physics.imbalance * (sum(slowest) - one), 0.0)
    pieces = {name: count * part for name, part in average._asdict().items()}
    pieces["imbalance"] = count * excess
    pieces["bubble"] = idle(runs) * one
    pieces["boundary"] = constants.other * boundary_seconds(runs, physics)
    exposed, _ = data_seconds(runs, physics, hiding_seconds(runs, nominal))
    pieces["data"] = constants.other * exposed
    pieces["optimizer"] = constants.other * optimizer_seconds(runs, physics)
    domains = np.log2(np.maximum(runs.devices / runs.domain, 1))
    work = passes(runs) * sum(nominal)
    pieces["waiting"] = constants.other * physics.waiting * domains * work
    return pieces


def idle(runs: Runs) -> Any:
    """Return the micro batches in whose time a stage is idle.

    If s ranks share a core, K stages have K/s cores, and a micro batch takes s times as
    long as with a core of its own: (K/s - 1)/s micro batches.
    """
    stages = np.maximum(runs.stage / runs.sharing, 1)
    return (stages - 1) / runs.sharing / runs.rounds


def passes(runs: Runs) -> Any:
    """Return the micro batches of a step and those in whose time a stage is idle."""
    return runs.micro_batches + idle(runs)


def hiding_seconds(runs: Runs, nominal: Pass) -> Any:
    """Return the seconds of products, in which messages between replicas are hidden."""
    return passes(runs) * (nominal.products + nominal.attention) / BUSY


def total(pieces: dict[str, Any]) -> Any:
    """Return the seconds of a step."""
    return sum(pieces.values())


def hidden_seconds(runs: Runs, physics: Physics, constants: Constants) -> Any:
    """Return the seconds of messages of data parallelism behind computation."""
    block, head = block_pass(runs, physics), head_pass(runs, physics)
    nominal = block.scaled(runs.layers / runs.stage).plus(head.scaled(1 / runs.stage))
    busy = hiding_seconds(runs, nominal)
    return constants.other * data_seconds(runs, physics, busy)[1]


def filled(rows: Any, columns: Any, processors: Any) -> Any:
    """Return the fraction of the processors' time in which tiles are full.

    Tiles of 256 x 128 are computed in waves, one on each processor; the last wave and
    the tiles at the edges are not full. With 0 processors a systolic array of 128 x 128
    is padded; a number below 0 stands for a core, without tiles.
    """
    rows, columns = np.asarray(rows, float), np.asarray(columns, float)
    tiles = np.ceil(rows / TILE[0]) * np.ceil(columns / TILE[1])
    slots = np.ceil(tiles / np.maximum(processors, 1)) * np.maximum(processors, 1)
    padded = np.ceil(rows / ARRAY) * np.ceil(columns / ARRAY) * ARRAY**2
    waves = rows * columns / (TILE[0] * TILE[1]) / slots
    array = np.where(np.asarray(processors) < 0, 1.0, rows * columns / padded)
    return np.where(np.asarray(processors) > 0, waves, array)


def product_seconds(runs: Runs, rows: Any, columns: Any, inner: Any, peak: Any) -> Any:
    """Return the seconds of a matrix product of rows x inner by inner x columns."""
    return 2 * rows * columns * inner / peak / filled(rows, columns, runs.processors)


def block_pass(runs: Runs, physics: Physics) -> Pass:
    """Return the seconds of a micro batch in one block: forward, backward, remat."""
    remat = np.asarray(runs.remat)
    forward, backward = products(runs)
    attention, attention_back = attention_seconds(runs, physics)
    again = remat * attention + runs.selective * attention
    traffic, scores = traffic_seconds(runs, physics)
    return Pass(
        forward + backward + remat * forward,
        attention + attention_back + again,
        (3 + remat) * (traffic + scores)
        + runs.selective * scores
        + cast_seconds(runs, physics),
        physics.kernel * (3 + remat),
        tensor_seconds(runs, physics, 4 + 2 * remat),
        expert_seconds(runs, physics, 4 + 2 * remat),
    )


def products(runs: Runs) -> tuple[Any, Any]:
    """Return the seconds of a block's products with weights, forward and backward."""
    width, tensor, peak = runs.width, runs.tensor, runs.linear_peak
    local = runs.experts / runs.expert  # experts of a device
    routed = runs.tokens * runs.top_k / local  # tokens of one expert
    inner = runs.matrices * runs.feed_forward / tensor
    layers = (  # tokens, inputs, outputs, number
        (runs.tokens, width, (runs.queries + 2 * runs.keys) / tensor, 1),
        (runs.tokens, runs.queries / tensor, width, 1),
        (routed, width, inner, local),
        (routed, runs.feed_forward / tensor, width, local),
    )
    forward = backward = 0.0
    for tokens, inputs, outputs, number in layers:
        forward += number * product_seconds(runs, tokens, outputs, inputs, peak)
        backward += number * product_seconds(runs, tokens, inputs, outputs, peak)
        backward += number * product_seconds(runs, inputs, outputs, tokens, peak)
    return forward, backward


def attention_seconds(runs: Runs, physics: Physics) -> tuple[Any, Any]:
    """Return the seconds of scores and sums of values, forward and backward.

    A fused kernel omits the upper half of causal scores, unless a ring of devices
    divides the sequence: then the last device has whole rows. Its backward computes the
    scores again: five products instead of four.
    """
    flops = 4 * runs.tokens * runs.sequence * runs.queries / runs.tensor
    halves = (np.asarray(runs.causal) > 0) & np.equal(runs.context, 1)
    hopper, modern = np.asarray(runs.hopper) > 0, np.asarray(runs.modern) > 0
    rate = np.where(
        modern,
        np.where(hopper, physics.attention_hopper, physics.attention),
        np.where(hopper, physics.first_attention_hopper, physics.first_attention),
    )
    aligned = np.equal(runs.queries / runs.heads % 8, 0)
    slow = np.where(aligned, 1.0, physics.unaligned) / physics.scores
    fused = np.asarray(runs.fused) > 0
    forward = (
        flops / runs.peak * np.where(fused, np.where(halves, 0.5, 1.0) / rate, slow)
    )
    return forward, forward * np.where(fused, 2.5, 2.0)


def traffic_seconds(runs: Runs, physics: Physics) -> tuple[Any, Any]:
    """Return the seconds of elementwise operations and of softmax, forward."""
    sharded = np.where(np.asarray(runs.sequence_parallel) > 0, 1.0, physics.sharded)
    stream = runs.width * (sharded / runs.tensor + 1 - sharded)
    hidden = 3 * runs.top_k * runs.feed_forward * runs.matrices / runs.tensor
    units = runs.tokens * (physics.traffic * stream + hidden)
    scores = runs.tokens * runs.sequence * runs.heads / runs.tensor
    softmax = np.where(np.asarray(runs.fused) > 0, 0.0, physics.softmax * scores)
    rate = runs.itemsize / runs.bandwidth
    return units * rate, softmax * rate


def cast_seconds(runs: Runs, physics: Physics) -> Any:
    """Return the seconds of casts of activations and weights to float8."""
    float8 = np.isin(
        runs.precision, [PRECISIONS.index("fp8"), PRECISIONS.index("fp8_rowwise")]
    )
    units = (
        2 * runs.width
        + (runs.queries + runs.top_k * runs.feed_forward * runs.matrices) / runs.tensor
    )
    weights = 4 * runs.width**2 + 3 * runs.width * runs.feed_forward
    operands = 3 * runs.tokens * units + 2 * weights / runs.tensor
    return np.where(float8, physics.casts * operands / runs.bandwidth, 0.0)


def tensor_seconds(runs: Runs, physics: Physics, count: Any) -> Any:
    """Return the seconds of a block's all-reduces over `tensor` devices."""
    inside = np.asarray(runs.tensor) <= runs.domain
    rate = np.where(inside, runs.link, physics.network * runs.network)
    nbytes = 2.0 * runs.tokens * runs.width
    return count * all_reduce_seconds(runs.tensor, nbytes, rate, physics.latency)


def expert_seconds(runs: Runs, physics: Physics, count: Any) -> Any:
    """Return the seconds of a block's all-to-alls over `expert` devices."""
    inside = np.asarray(runs.expert) * runs.tensor <= runs.domain
    share = physics.network * runs.network / runs.node
    rate = np.where(inside, runs.link, share)
    nbytes = 2.0 * runs.tokens * runs.top_k * runs.width
    return count * gather_seconds(runs.expert, nbytes, rate, physics.latency)


def head_pass(runs: Runs, physics: Physics) -> Pass:
    """Return the seconds of a micro batch in the head, which is not recomputed."""
    tokens, columns = runs.tokens * runs.output, runs.vocabulary / runs.tensor
    logits = 3 * tokens * columns * 4.0 / runs.bandwidth
    return Pass(
        3 * product_seconds(runs, tokens, columns, runs.width, runs.peak),
        0.0,
        logits,
        0.0,
        tensor_seconds(runs, physics, 2),
        0.0,
    )


def boundary_message(runs: Runs, physics: Physics) -> tuple[Any, Any]:
    """Return the bytes that a device sends to the next stage, and their seconds.

    Each device of a tensor group sends its part of the activations, and the receivers
    gather them inside the domain (scatter/gather, Narayanan et al. 2021, section 4.1).
    """
    inside = np.asarray(runs.devices) <= runs.domain
    share = physics.network * runs.network / runs.node
    rate = np.where(inside, runs.link, share)
    stream = 2.0 * runs.tokens * runs.width
    parts = np.minimum(runs.tensor, runs.domain)
    nbytes, gather = stream / parts, gather_seconds(parts, stream, runs.link)
    together = np.asarray(runs.sequence_parallel) > 0
    return nbytes, message_seconds(nbytes, rate) + np.where(together, 0.0, gather)


def boundary_seconds(runs: Runs, physics: Physics) -> Any:
    """Return the seconds of messages between stages that are not hidden."""
    _, duration = boundary_message(runs, physics)
    pair = 2 * duration  # activations, and their gradient
    steady = physics.boundary * runs.micro_batches * runs.rounds
    return np.where(runs.stage > 1, (steady + 2 * (runs.stage - 1)) * pair, 0.0)


def device_parameters(runs: Runs) -> tuple[Any, Any]:
    """Return the parameters of an average stage on a device: dense ones, experts."""
    layers = runs.layers / runs.stage / runs.tensor
    dense = runs.attention_parameters + np.where(
        np.equal(runs.experts, 1), runs.expert_parameters, 0.0
    )
    experts = np.where(
        np.equal(runs.experts, 1), 0.0, runs.experts * runs.expert_parameters
    )
    embedding = runs.vocabulary * runs.width / runs.tensor
    return layers * dense + embedding, layers * experts / runs.expert


def data_seconds(runs: Runs, physics: Physics, busy: Any) -> tuple[Any, Any]:
    """Return the seconds of messages between replicas: exposed, and hidden.

    An all-reduce of gradients; with zero = 3 two gathers of the parameters and a
    reduce-scatter of gradients for each micro batch, hidden behind a part of `busy`.
    The replicas in a domain share its cards with `flows` other groups.
    """
    data = np.asarray(runs.data) * runs.context
    shards = np.minimum(runs.zero_group, data)
    per_domain = np.maximum(runs.domain / runs.tensor, 1)
    inner = np.clip(per_domain, 1, data)  # replicas in a domain
    flows = runs.domain / inner
    out = physics.network * runs.network * (runs.domain / runs.node) / flows
    waves = np.asarray(runs.processors) > 0
    link = runs.link * np.where(waves, physics.link, physics.link_torus)

    def ring(nbytes: Any, size: Any) -> Any:
        wide = (size > inner) & (np.asarray(runs.devices) > runs.domain)
        return gather_seconds(size, nbytes, np.where(wide, np.minimum(link, out), link))

    dense, experts = device_parameters(runs)
    nbytes, expert_nbytes = dense * runs.itemsize, experts * runs.itemsize
    copies = np.maximum(data / runs.expert, 1)  # replicas of an expert
    gathers = (
        3
        * runs.micro_batches
        * (ring(nbytes, shards) + ring(expert_nbytes, np.minimum(shards, copies)))
    )
    exposed = np.maximum(physics.gather * gathers, gathers - physics.hidden * busy)
    groups = data / np.maximum(shards, 1)  # between groups that hold all parameters
    wide = (np.asarray(runs.devices) > runs.domain) & (groups > 1)
    share = out / np.minimum(shards, inner)
    between = np.where(
        wide, all_reduce_seconds(groups, (nbytes + expert_nbytes) / shards, share), 0.0
    )
    reduce = 2 * (ring(nbytes, data) + ring(expert_nbytes, copies))
    visible = np.where(
        np.asarray(runs.zero) >= 1, physics.reduce_sharded, physics.reduce
    )
    full = np.asarray(runs.zero) >= 3
    shown = np.where(full, exposed + physics.across * between, visible * reduce)
    return shown, np.where(full, gathers + between, reduce) - shown


def optimizer_seconds(runs: Runs, physics: Physics) -> Any:
    """Return the seconds of the update of a device's parameters."""
    sharded = np.asarray(runs.zero) >= 1
    data = np.asarray(runs.data) * runs.context
    own = sum(device_parameters(runs)) / np.where(sharded, data, 1)
    return physics.optimizer * own / runs.bandwidth
