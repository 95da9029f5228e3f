"""The axes of a mesh, and the PartitionSpecs over them.

--mesh=data:2,stage:2,tensor:2      data     replicas, each with its own examples
                                    stage    parts of the layers, in a pipeline
d0 d1 | d2 d3   data 0              tensor   slices of every layer's matrices
d4 d5 | d6 d7   data 1
stage 0  stage 1                    the first axis given varies slowest

--mesh=data:2,sequence:2            sequence   consecutive positions of each example,
                                               with equal params, as on data
"""

import math
from typing import Any

from jax.sharding import Mesh, PartitionSpec

from dml.types import BadInput

AXES = ("data", "stage", "tensor")
RING = "sequence"  # optional: a mesh has this axis only if it is given
REPLICATED = PartitionSpec()  # equal on every device
DATA_SHARDED = PartitionSpec("data")  # shards of ZeRO: see slices.py
EXAMPLES = PartitionSpec(None, "data")  # microbatches x examples
POSITIONS = PartitionSpec(None, None, "sequence")  # microbatches x examples x positions
EXAMPLE_POSITIONS = PartitionSpec(None, "data", "sequence")  # sharded by both
SHARDED = PartitionSpec(("stage", "tensor"))  # vectors of a stage: see packed.py
SLICED = PartitionSpec(("stage", "tensor", "data"))  # slices of such vectors
PER_DEVICE = PartitionSpec(("data", "stage", "tensor"))  # vectors of one device
COLUMNS, ROWS = PartitionSpec(None, "tensor"), PartitionSpec("tensor")  # of matrices


def parse(text: str, devices: int) -> dict[str, int]:
    """Parse --mesh; return the size of each axis, the axes not given last, with size 1.

    Args:
      text: The flag, such as data:2,tensor:4.
      devices: Number of devices; the product of all sizes.
    """
    sizes: dict[str, int] = {}
    for item in text.split(",") if text else []:
        name, _, size = item.partition(":")
        if name not in (*AXES, RING) or name in sizes:
            raise BadInput(
                f"expected axes of {', '.join(AXES)}, {RING}, each once, got {item!r}; "
                "pass a list such as --mesh=data:2,stage:2,tensor:2"
            )
        if not (size.isascii() and size.isdecimal() and int(size)):
            raise BadInput(
                f"expected a size of at least 1 for the axis {name}, got {size!r}; "
                f"pass an integer, such as --mesh={name}:2"
            )
        sizes[name] = int(size)
    sizes |= {name: 1 for name in AXES if name not in sizes}
    product = math.prod(sizes.values())
    if product != devices:
        raise BadInput(
            f"expected axes whose product is {devices} devices, got "
            f"{format_axes(sizes)}, "
            f"whose product is {product}; pass --mesh=data:{devices}, or use {product} "
            "devices"
        )
    return sizes


def replicas(axes: Mesh) -> tuple[str, ...]:
    """Return the axes with equal params: data, and sequence where the mesh has it."""
    return tuple(name for name in ("data", RING) if name in axes.axis_names)


def format_axes(sizes: dict[str, int]) -> str:
    """Return axes in the form of the flag --mesh."""
    return ",".join(f"{name}:{size}" for name, size in sizes.items())


def mesh_shapes(devices: int) -> list[dict[str, int]]:
    """Return the sizes of AXES of every mesh of this number of devices."""
    divisors = [n for n in range(1, devices + 1) if devices % n == 0]
    return [
        {"data": data, "stage": stage, "tensor": devices // (data * stage)}
        for data in reversed(divisors)
        for stage in divisors
        if devices % (data * stage) == 0
    ]


def local_shape(
    shape: tuple[int, ...], spec: PartitionSpec, size: int
) -> tuple[int, ...]:
    """Return the shape of the slice of an array on one device of the axis `tensor`.

    Args:
      shape: Shape of the array.
      spec: Sharding of the array.
      size: Number of devices of the axis `tensor`.
    """
    cut = cut_axis(spec)
    return tuple(n // size if axis == cut else n for axis, n in enumerate(shape))


def cut_axis(spec: Any) -> int | None:
    """Return the array axis that is sharded over `tensor`; None if replicated."""
    return next((axis for axis, name in enumerate(spec) if name == "tensor"), None)
