"""Search of training plans: meshes and options that fit a device's memory."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from dml.models.memory import DeviceBytes, block_parameters, fullest_device
from dml.models.networks.transformer import SIZES, Shape
from dml.types import BadInput
from dml.wire.costs.mesh import Machine, Seconds, Work, seconds
from dml.wire.plans.mesh import MeshPlan

GB = 10**9
DOUBLINGS = 4  # numbers of devices to try: the fewest that fit, times 1, 2, 4, 8


class Workload(NamedTuple):
    """A model, its minibatch, and the sizes published in the lecture.

    shape: the model.
    causal: whether attention is masked.
    batch: examples of a step.
    billions: published billions of parameters; None: not published.
    gigabytes: published gigabytes of training state; None: not published.
    """

    shape: Shape
    causal: bool
    batch: int
    billions: float | None = None
    gigabytes: float | None = None


TOKENS = {"tiny": 2048, "mini": 2048, "small": 50257, "medium": 50257}
LENGTHS = {"tiny": 64, "mini": 64, "small": 1024, "medium": 1024}
MODELS = {
    "bert-large": Workload(Shape(30522, 512, 24, 1024, 16), False, 256, 0.32, 5.12),
    "gpt2": Workload(Shape(50257, 1024, 48, 1600, 25), True, 512, 1.5, 24),
    "turing": Workload(Shape(50257, 1024, 78, 4256, 28), True, 512, 17.2, 275),
    "gpt3": Workload(Shape(50257, 2048, 96, 12288, 96), True, 1536, 175, 2800),
} | {
    f"gpt-{name}": Workload(Shape(TOKENS[name], LENGTHS[name], *size), True, 512)
    for name, size in SIZES["gpt"].items()
}
LECTURE = [name for name, workload in MODELS.items() if workload.billions]


class Search(NamedTuple):
    """The arguments of a search.

    workload: model, minibatch and published sizes.
    limit: bytes of a device's memory.
    machine: speed of devices and links.
    schedule: pipeline schedule.
    """

    workload: Workload
    limit: float
    machine: Machine
    schedule: str = "1f1b"


class Candidate(NamedTuple):
    """A plan that fits, the memory of its fullest device, and the time of a step."""

    plan: MeshPlan
    memory: DeviceBytes
    seconds: Seconds

    @property
    def price(self) -> float:
        """Return device-seconds per step."""
        return self.plan.devices * self.seconds.total


def divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def meshes(search: Search) -> list[MeshPlan]:
    """Return every mesh, smallest first.

    Heads are not split, stages have equal numbers of blocks, and the tensor axis is
    within a host.
    """
    (_, _, layers, _, heads), host = search.workload.shape, search.machine.host
    axes = itertools.product(
        divisors(search.workload.batch),
        divisors(layers),
        [size for size in divisors(heads) if size <= host and host % size == 0],
    )
    plans = (
        MeshPlan(data, stage, tensor, 1, search.workload.batch // data, search.schedule)
        for data, stage, tensor in axes
    )
    return sorted(plans, key=lambda plan: plan.devices)


def variants(mesh: MeshPlan) -> Iterator[MeshPlan]:
    """Yield a plan for each combination of microbatch, remat, sequence and ZeRO."""
    examples = mesh.microbatches
    sizes = [1 << k for k in range(examples.bit_length()) if examples % (1 << k) == 0]
    sequences = (False, True) if mesh.tensor > 1 else (False,)
    levels = range(4 if mesh.data > 1 else 1)
    for size, remat, sequence, zero in itertools.product(
        sizes, (False, True), sequences, levels
    ):
        yield mesh._replace(
            microbatch=size,
            microbatches=examples // size,
            remat=remat,
            sequence=sequence,
            zero=zero,
        )


def fitting(search: Search, plan: MeshPlan) -> DeviceBytes | None:
    """Return the memory of the fullest device; None if it exceeds the limit."""
    device = fullest_device(search.workload.shape, search.workload.causal, plan)
    return device if device.total <= search.limit else None


def can_fit(search: Search, mesh: MeshPlan) -> bool:
    """Return whether the model fits on the mesh with the plan of least memory."""
    smallest = mesh._replace(sequence=mesh.tensor > 1, zero=3 if mesh.data > 1 else 0)
    return any(
        fitting(search, smallest._replace(remat=remat)) for remat in (False, True)
    )


def candidates(search: Search, devices: int) -> list[Candidate]:
    """Return all plans that fit on `devices` devices, fastest first."""
    shape = search.workload.shape
    work = Work(
        shape.layers,
        shape.width,
        shape.length,
        shape.vocabulary,
        block_parameters(shape),
    )
    plans = [
        Candidate(plan, memory, seconds(work, plan, search.machine))
        for mesh in meshes(search)
        if mesh.devices == devices and can_fit(search, mesh)
        for plan in variants(mesh)
        if (memory := fitting(search, plan))
    ]
    return sorted(plans, key=lambda candidate: candidate.seconds.total)


def fewest_devices(search: Search, at_least: int = 1) -> int:
    """Return the fewest devices, but at least `at_least`, on which the model fits."""
    for mesh in meshes(search):
        if mesh.devices >= at_least and can_fit(search, mesh):
            return mesh.devices
    raise BadInput(
        f"no mesh of at least {at_least} devices fits the model in "
        f"{search.limit / GB:g} GB per device; increase --device_gb"
    )


def candidates_by_devices(search: Search, devices: int) -> dict[int, list[Candidate]]:
    """Return the plans that fit, by number of devices.

    Args:
      search: Model and devices.
      devices: Number of devices; 0 uses the fewest that fit, and 2, 4, 8 times that.
    """
    fewest = fewest_devices(search, max(1, devices))
    if devices and devices != fewest:
        raise BadInput(
            f"expected a number of devices that divides blocks, heads and batch, and "
            f"fits the model, got {devices} of {search.limit / GB:g} GB; pass "
            f"--devices={fewest}"
        )
    counts = [devices] if devices else [fewest << k for k in range(DOUBLINGS)]
    plans_by_count = {count: candidates(search, count) for count in counts}
    return {count: plans for count, plans in plans_by_count.items() if plans}


def cheapest(plans_by_devices: dict[int, list[Candidate]]) -> Candidate:
    """Return the plan with the fewest device-seconds."""
    return min(
        (plans[0] for plans in plans_by_devices.values()),
        key=lambda candidate: candidate.price,
    )


def mesh_text(plan: MeshPlan) -> str:
    """Return a plan's mesh as text for --mesh."""
    axes = {"data": plan.data, "stage": plan.stage, "tensor": plan.tensor}
    return ",".join(f"{k}:{n}" for k, n in axes.items() if n > 1) or "data:1"


def options_text(plan: MeshPlan) -> str:
    """Return the options of a plan as text."""
    options = {"remat": plan.remat, "sequence": plan.sequence}
    options[f"zero {plan.zero}"] = plan.data > 1
    return " ".join(name for name, on in options.items() if on) or "plain"
