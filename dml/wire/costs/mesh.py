"""Predicted seconds of a parallel training step, by cause: pure arithmetic.

    compute │ tensor │ stage │ bubble │ data

    compute  6 flops per parameter and token, and attention; a third more with remat
    tensor   in each block 2 all-reduces forwards, 2 backwards (2 again with remat) of
             the activations of a microbatch: 2·b·s·h·(t-1)/t words sent and received
    stage    for each microbatch, activations forwards and their gradient backwards
    bubble   the time above for K - 1 microbatches: (K - 1)/(M + K - 1) of the total
    data     one ring all-reduce of a device's gradients; other collectives with ZeRO

Communication does not overlap with computation. Devices are numbered by tensor, then by
data, then by stage: a tensor group is always inside one host; its replicas are, if they
fit; stages are, if all devices fit.
"""

from typing import NamedTuple

from dml.wire.costs.allreduce import Rates, gather_seconds
from dml.wire.plans.mesh import Plan


class Work(NamedTuple):
    """Sizes of the model that is trained."""

    layers: int
    width: int
    length: int  # tokens of an example
    vocabulary: int
    block: int  # parameters of a block
    itemsize: int = 2  # bytes of an activation and of a gradient


class Machine(NamedTuple):
    """Speed of devices and networks."""

    flops: float  # flops per second of a device, as measured with models
    inside: Rates  # rates between devices of a host
    network: Rates  # rates between hosts
    host: int  # number of devices of a host


class Seconds(NamedTuple):
    """Seconds of a step, by cause; see the module's docstring."""

    compute: float
    tensor: float
    stage: float
    bubble: float
    data: float

    @property
    def total(self) -> float:
        """Seconds of the step."""
        return sum(self)


def seconds(work: Work, plan: Plan, machine: Machine) -> Seconds:
    """Predict the seconds of a step from the slowest stage."""
    compute = stage_flops(work, plan) / (plan.tensor * machine.flops)
    stream = plan.microbatch * work.length * work.width * work.itemsize
    reduced = 4 + 2 * plan.remat
    tensor = (
        reduced * blocks(work, plan) * all_reduce(plan.tensor, stream, machine.inside)
    )
    near = machine.inside if plan.devices <= machine.host else machine.network
    boundary = stream / (plan.tensor if plan.sequence else 1)
    stage = 2 * (near.alpha + near.beta * boundary) * (plan.stage > 1)
    return Seconds(
        plan.microbatches * compute,
        plan.microbatches * tensor,
        plan.microbatches * stage,
        (plan.stage - 1) * (compute + tensor + stage),
        data_seconds(work, plan, machine),
    )


def blocks(work: Work, plan: Plan) -> int:
    """Return the number of blocks of the longest stage."""
    return -(-work.layers // plan.stage)


def stage_flops(work: Work, plan: Plan) -> float:
    """Return the flops of a microbatch on the last stage, the slowest by its head."""
    # scores and mixing: Narayanan 2021, eq. 3
    attention = 12 * work.width * work.length
    inside = blocks(work, plan) * (6 * work.block + attention)
    head = 6 * work.vocabulary * work.width  # not recomputed
    recompute = 4 / 3 if plan.remat else 1.0
    return plan.microbatch * work.length * (recompute * inside + head)


def all_reduce(size: int, nbytes: float, rates: Rates) -> float:
    """Return the seconds of a ring all-reduce, without the time of additions."""
    return 2 * gather_seconds(size, int(nbytes), rates)


def data_seconds(work: Work, plan: Plan, machine: Machine) -> float:
    """Return the seconds of communication between replicas.

    A pass sends (d - 1)/d of a device's gradients round a ring. There are two passes.
    With ZeRO 2, gradients are scattered after every microbatch; with ZeRO 3, parameters
    are also gathered before each forward and each backward.
    """
    near = plan.tensor * plan.data <= machine.host
    rates = machine.inside if near else machine.network
    params = blocks(work, plan) * work.block + work.vocabulary * work.width
    nbytes = params / plan.tensor * work.itemsize
    passes = (2, 2, plan.microbatches + 1, 3 * plan.microbatches)[plan.zero]
    return passes * gather_seconds(plan.data, int(nbytes), rates)
