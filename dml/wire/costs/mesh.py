"""What a step of a plan costs on a machine: seconds, by what takes them; pure.

    compute │ tensor │ stage │ bubble │ data

    compute  6 flops a parameter and token, and attention's; with remat a third more
    tensor   in each block 2 all-reduces forwards, 2 backwards (2 again with remat), of
             a microbatch's stream: 2·b·s·h·(t-1)/t numbers sent and received
    stage    a stream sent forwards, and its gradient backwards, a microbatch
    bubble   K - 1 microbatches' time of all that: (K - 1)/(M + K - 1) of the whole
    data     one ring all-reduce of a device's gradients; ZeRO's levels send otherwise

Nothing overlaps. Devices are numbered tensor first, then data, then stage: tensor lies
inside a host, data if they fit in there together, stages only if all do.
"""

from typing import NamedTuple

from dml.wire.costs.allreduce import Rates, gather_seconds
from dml.wire.plans.mesh import Plan


class Work(NamedTuple):
    """What is trained: all that its cost depends on."""

    layers: int
    width: int
    length: int
    vocabulary: int
    block: int  # parameters of a block
    itemsize: int = 2  # bytes of an activation, of a gradient


class Machine(NamedTuple):
    """What it is trained on."""

    flops: float  # a second that a device does of a model's
    inside: Rates  # of a host
    network: Rates
    host: int  # devices that are in one


class Seconds(NamedTuple):
    """Of a step."""

    compute: float
    tensor: float
    stage: float
    bubble: float
    data: float

    @property
    def total(self) -> float:
        return sum(self)


def seconds(work: Work, plan: Plan, machine: Machine) -> Seconds:
    """Predict how long a step takes; the slowest stage sets the pace."""
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
    """Return how many blocks the longest stage has."""
    return -(-work.layers // plan.stage)


def stage_flops(work: Work, plan: Plan) -> float:
    """Count a microbatch's on the slowest stage: the last one, which has the head."""
    attention = (
        12 * work.width * work.length
    )  # scores and mixing: Narayanan 2021, eq. 3
    inside = blocks(work, plan) * (6 * work.block + attention)
    head = 6 * work.vocabulary * work.width  # is not computed again
    again = 4 / 3 if plan.remat else 1.0
    return plan.microbatch * work.length * (again * inside + head)


def all_reduce(size: int, nbytes: float, rates: Rates) -> float:
    """A ring's reduce-scatter and all-gather, which send as much; adding is free."""
    return 2 * gather_seconds(size, int(nbytes), rates)


def data_seconds(work: Work, plan: Plan, machine: Machine) -> float:
    """The replicas' traffic: a pass is (d - 1)/d of a device's gradients round a ring.

    Two passes; with ZeRO 2 gradients are scattered after every microbatch, with ZeRO 3
    parameters are also gathered before each one's forward pass and backward pass.
    """
    near = plan.tensor * plan.data <= machine.host
    rates = machine.inside if near else machine.network
    held = blocks(work, plan) * work.block + work.vocabulary * work.width
    nbytes = held / plan.tensor * work.itemsize
    passes = (2, 2, plan.microbatches + 1, 3 * plan.microbatches)[plan.zero]
    return passes * gather_seconds(plan.data, int(nbytes), rates)
