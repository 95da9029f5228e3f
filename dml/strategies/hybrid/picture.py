"""The division of a model on a mesh, as lines for a terminal.

stage  params                 matrix slice  params per device  devices (rank:device)
0      embed block_0 block_1  1/2           0.61 MB            0:0 0:1 | 0:4 0:5
1      block_2 block_3 head   1/2           0.58 MB            0:2 0:3 | 0:6 0:7
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from dml.strategies.hybrid.parts import StagePart
from dml.wire.mesh.axes import format_axes, replicas

HEADINGS = (
    *("stage", "params", "matrix slice", "params per device"),
    "devices (rank:device)",
)
MB = 1e6
MAX_DEVICES = 8  # number of devices shown in a row


def mesh_lines(parts: Sequence[StagePart], axes: Mesh) -> list[str]:
    """Return the mesh, the headings, and a row for each stage."""
    names = *replicas(axes), "stage", "tensor"
    grid = np.transpose(axes.devices, [axes.axis_names.index(name) for name in names])
    grid = grid.reshape(-1, *grid.shape[-2:])  # replicas x stages x tensor
    rows = [HEADINGS, *(row(parts, grid, stage) for stage in range(grid.shape[1]))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = [
        "  ".join(cell.ljust(n) for cell, n in zip(cells, widths, strict=True)).rstrip()
        for cells in rows
    ]
    return [f"mesh {format_axes(dict(axes.shape))}", *table]


def row(parts: Sequence[StagePart], grid: np.ndarray, stage: int) -> tuple[str, ...]:
    """Return the cells of one stage; a bar separates replicas.

    Args:
      parts: Parts of the model.
      grid: Devices: replicas x stages x tensor.
      stage: Index of the stage.
    """
    parts = [part for part in parts if part.stage == stage]
    names = list(dict.fromkeys(name for part in parts for name in part.names))
    leaves = jax.tree.leaves([part.params.shapes for part in parts])
    tensor_size, labels = grid.shape[2], device_labels(grid.flat)
    replicas = [
        " ".join(labels[device.id] for device in devices) for devices in grid[:, stage]
    ]
    shown = max(1, MAX_DEVICES // tensor_size)
    more = [f"{len(replicas) - shown} more"] if len(replicas) > shown else []
    return (
        str(stage),
        shorten(names),
        f"1/{tensor_size}" if tensor_size > 1 else "all",
        f"{sum(leaf.size * leaf.dtype.itemsize for leaf in leaves) / MB:.2f} MB",
        " | ".join([*replicas[:shown], *more]),
    )


def device_labels(devices: Iterable[Any]) -> dict[int, str]:
    """Return rank:device of each device by its id in JAX.

    Devices are counted on each rank, as JAX's ids of CPUs begin at 2048 times the rank.
    """
    counts, labels = Counter[int](), dict[int, str]()
    for device in sorted(devices, key=lambda device: (device.process_index, device.id)):
        rank = device.process_index
        labels[device.id] = f"{rank}:{counts[rank]}"
        counts[rank] += 1
    return labels


def shorten(names: Sequence[str]) -> str:
    """Join the names; of five or more, only the first two and the last."""
    return " ".join(names) if len(names) < 5 else f"{names[0]} {names[1]} … {names[-1]}"
