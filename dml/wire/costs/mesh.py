"""Predicted seconds of a parallel training step, by part of the step.

    compute │ tensor │ stage │ bubble │ data

    compute  6 flops per parameter and token, and attention; a third more with remat
    tensor   in each block 2 all-reduces forwards, 2 backwards (2 more with remat) of
             the activations of a microbatch of b examples of s tokens of width h, over
             t devices: a device sends and receives 2·b·s·h·(t-1)/t elements in each
    stage    for each microbatch, activations forwards and their gradient backwards
    bubble   the time above for K - 1 microbatches: (K - 1)/(M + K - 1) of the total,
             for K stages and M microbatches
    data     one ring all-reduce of a device's gradients; other collectives with ZeRO

Communication does not overlap with computation. Devices are numbered by tensor, then by
data, then by stage. The devices of a tensor group are always on one host. So are the
replicas if tensor x data devices fit on a host, and all stages if all devices do.
"""

from typing import NamedTuple

from dml.wire.costs.allreduce import Rates, gather_seconds
from dml.wire.plans.mesh import MeshPlan


class Work(NamedTuple):
    """Sizes of the trained model."""

    layers: int  # number of blocks
    width: int  # units of the residual stream
    length: int  # tokens of an example
    vocabulary: int  # number of token types
    block: int  # number of parameters of a block
    itemsize: int = 2  # bytes of an activation and of a gradient


class Machine(NamedTuple):
    """Speed of devices and networks."""

    flops: float  # flops per second of a device, as measured in training
    inside: Rates  # rates between devices of a host
    network: Rates  # rates between hosts
    host: int  # number of devices of a host


class Seconds(NamedTuple):
    """Seconds of a step, by part; see the module's docstring."""

    compute: float
    tensor: float
    stage: float
    bubble: float
    data: float

    @property
    def total(self) -> float:
        """Seconds of the step."""
        return sum(self)


def seconds(work: Work, plan: MeshPlan, machine: Machine) -> Seconds:
    """Predict the seconds of a step from the slowest stage."""
    # seconds of one microbatch
    compute = stage_flops(work, plan) / (plan.tensor * machine.flops)
    stream = plan.microbatch * work.length * work.width * work.itemsize
    count = (4 + 2 * plan.remat) * blocks(work, plan)  # all-reduces
    tensor = count * all_reduce_seconds(plan.tensor, stream, machine.inside)
    link = machine.inside if plan.devices <= machine.host else machine.network
    boundary = stream / (plan.tensor if plan.sequence else 1)
    stage = 2 * (link.alpha + link.beta * boundary) * (plan.stage > 1)
    return Seconds(
        plan.microbatches * compute,
        plan.microbatches * tensor,
        plan.microbatches * stage,
        (plan.stage - 1) * (compute + tensor + stage),
        data_seconds(work, plan, machine),
    )


def blocks(work: Work, plan: MeshPlan) -> int:
    """Return the number of blocks of the largest stage."""
    return -(-work.layers // plan.stage)


def stage_flops(work: Work, plan: MeshPlan) -> float:
    """Return the flops of a microbatch on the last stage, which also has the head."""
    # scores, and sums of values: Narayanan 2021, eq. 3
    attention = 12 * work.width * work.length
    inside = blocks(work, plan) * (6 * work.block + attention)
    head = 6 * work.vocabulary * work.width  # not recomputed
    recompute = 4 / 3 if plan.remat else 1.0
    return plan.microbatch * work.length * (recompute * inside + head)


def all_reduce_seconds(size: int, nbytes: float, rates: Rates) -> float:
    """Return the seconds of a ring all-reduce, without the time of additions."""
    return 2 * gather_seconds(size, int(nbytes), rates)


def data_seconds(work: Work, plan: MeshPlan, machine: Machine) -> float:
    """Return the seconds of communication between the d replicas.

    A pass sends (d - 1)/d of a device's gradients around a ring. An all-reduce has two
    passes. With ZeRO 2, gradients are reduce-scattered after every microbatch (one pass
    each); with ZeRO 3, parameters are also gathered before each forward and backward.
    """
    one_host = plan.tensor * plan.data <= machine.host
    rates = machine.inside if one_host else machine.network
    params = blocks(work, plan) * work.block + work.vocabulary * work.width
    nbytes = params / plan.tensor * work.itemsize
    passes = (2, 2, plan.microbatches + 1, 3 * plan.microbatches)[plan.zero]
    return passes * gather_seconds(plan.data, int(nbytes), rates)
