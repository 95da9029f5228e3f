"""All meshes of a number of devices, ranked by predicted seconds.

    tensor x stage x context x data = devices; expert divides data x context
    zero 0 to 3, remat none, selective or full, micro batches 1, 2, 4 ...

All meshes are columns of one `Runs`: 4,096 devices take one pass of array operations.
"""

from itertools import product
from typing import Any, NamedTuple

import numpy as np

from dml.planner import calibration as calibrations
from dml.planner import memory, runs, seconds
from dml.planner.calibration import Calibration
from dml.planner.devices import Device
from dml.planner.physics import Constants
from dml.planner.runs import Mesh, Runs
from dml.planner.shapes import Shape
from dml.types import BadInput

REMAT = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0))  # fractions: remat, selective
ROUNDS = (1, 2, 4, 8)
MICRO_BATCHES = 64  # largest micro batch


class Cluster(NamedTuple):
    """Devices and their calibration."""

    device: Device
    kind: str  # text of `calibration.kinds`
    devices: int
    precision: str = "bf16"


class Plans(NamedTuple):
    """Meshes as columns, with their predictions."""

    table: Runs
    seconds: np.ndarray
    memory: np.ndarray  # bytes
    constants: Constants

    @property
    def fits(self) -> np.ndarray:
        """Whether each mesh fits in memory."""
        return self.memory <= self.table.memory

    def ranked(self) -> np.ndarray:
        """Return the indices of meshes that fit, the fastest first.

        Of meshes with equal seconds, the one with the least memory is first.
        """
        order = np.lexsort((self.memory, self.seconds))
        return order[self.fits[order]]

    def mesh(self, index: int) -> Mesh:
        """Return one mesh."""
        one = runs.select(self.table, index)
        whole = ("data", "tensor", "stage", "context", "expert", "rounds", "zero")
        values: dict[str, Any] = {name: int(getattr(one, name)) for name in whole}
        return Mesh(
            **values,
            zero_group=int(one.zero_group),
            micro_batch=float(one.micro_batch),
            sequence_parallel=bool(one.sequence_parallel),
            remat=float(one.remat),
            selective=float(one.selective),
        )


def plan(shape: Shape, cluster: Cluster, batch: int, calibration: Calibration) -> Plans:
    """Return all meshes of a cluster for a model and a number of examples of a step."""
    table = candidates(shape, cluster, batch)
    constants, _ = calibrations.lookup(calibration, cluster.kind, cluster.precision)
    found = seconds.total(seconds.parts(table, calibration.physics, constants))
    used = memory.total(memory.parts(table, calibration.sizes))
    return Plans(table, np.asarray(found), np.asarray(used), constants)


def divisors(value: int) -> list[int]:
    """Return the divisors of a number."""
    return [d for d in range(1, value + 1) if value % d == 0]


def candidates(shape: Shape, cluster: Cluster, batch: int) -> Runs:
    """Return all meshes as columns; raise BadInput if there is none."""
    device, devices = cluster.device, cluster.devices
    domain = device.domain or device.node
    meshes = []
    tensors = [t for t in divisors(devices) if shape.heads % t == 0 and t <= domain]
    tensors = [t for t in tensors if t <= 2 * device.node or not device.processors]
    for tensor in tensors:
        for stage in divisors(devices // tensor):
            if stage > shape.layers:
                break
            for context in divisors(devices // tensor // stage):
                if context > 1 and not long_enough(shape, context):
                    break
                data = devices // tensor // stage // context
                if batch % data == 0:
                    meshes += variants(shape, batch, data, tensor, stage, context)
    if not meshes:
        raise BadInput(
            f"expected a batch that replicas of {devices} devices divide, got {batch} "
            "examples; pass a multiple of a power of two with --batch"
        )
    return as_columns(shape, cluster, batch, meshes)


def long_enough(shape: Shape, context: int) -> bool:
    """Return whether each of `context` devices has 4,096 tokens of a sequence."""
    return shape.sequence % context == 0 and shape.sequence >= 4096 * context


def divides(parts: int, layers: int) -> bool:
    """Return whether parts have equal blocks, or if embedding and head count as two."""
    return layers % parts == 0 or (layers + 2) % parts == 0


def variants(
    shape: Shape, batch: int, data: int, tensor: int, stage: int, context: int
) -> list[tuple]:
    """Return the meshes of one division, with all options."""
    replica = batch // data
    micro = [2**k for k in range(7) if replica % 2**k == 0 and 2**k <= MICRO_BATCHES]
    experts = [e for e in divisors(shape.experts) if data * context % e == 0]
    levels = [0, 1, 2, 3] if stage == 1 else [0, 1]  # gradients stay with stages
    if data * context == 1:
        levels = [0]
    rounds = [
        v for v in ROUNDS if v == 1 or (stage > 1 and divides(stage * v, shape.layers))
    ]
    found = []
    for size, parts, expert, zero, remat in product(
        micro, rounds, experts, levels, REMAT
    ):
        if parts > 1 and (replica // size) % stage:
            continue  # interleaving needs groups of K micro batches
        found.append((data, tensor, stage, context, expert, size, parts, zero, *remat))
    return found


def as_columns(shape: Shape, cluster: Cluster, batch: int, meshes: list[tuple]) -> Runs:
    """Return tuples of meshes as columns."""
    one = runs.make(shape, Mesh(), cluster.device, batch, cluster.precision)
    columns = np.array(meshes, float).T
    names = ("data", "tensor", "stage", "context", "expert", "micro_batch", "rounds")
    named = dict(zip(names, columns, strict=False))
    table = one._replace(
        **named,
        zero=columns[7],
        zero_group=columns[0] * columns[3],
        remat=columns[8],
        selective=columns[9],
        sequence_parallel=(columns[1] > 1) * 1.0,
    )
    length = columns.shape[1]
    return Runs(
        *(column if np.ndim(column) else np.full(length, column) for column in table)
    )


def nearest(plans: Plans) -> str:
    """Return the mesh with the least memory, and how much it lacks."""
    index = int(np.argmin(plans.memory))
    lacking = plans.memory[index] - plans.table.memory[index]
    return (
        f"{describe(plans.mesh(index))} needs {plans.memory[index] / 2**30:.1f} GiB, "
        f"{lacking / 2**30:.1f} GiB more than a device has"
    )


def describe(mesh: Mesh) -> str:
    """Return a mesh as text: tensor:8,stage:8,data:16."""
    sizes = {
        "tensor": mesh.tensor,
        "stage": mesh.stage,
        "context": mesh.context,
        "data": mesh.data,
        "expert": mesh.expert,
    }
    axes = [f"{name}:{size}" for name, size in sizes.items() if size > 1]
    return ",".join(axes) or "data:1"


def options(mesh: Mesh) -> str:
    """Return the options of a mesh as text: zero 1, remat, 4 rounds, batch 2."""
    words = [f"zero {mesh.zero}"] if mesh.zero else []
    if mesh.remat:
        words.append("remat")
    elif mesh.selective:
        words.append("selective")
    if mesh.rounds > 1:
        words.append(f"{mesh.rounds} rounds")
    return ", ".join([*words, f"micro {mesh.micro_batch:g}"])
