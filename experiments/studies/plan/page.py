"""plan.html: the meshes of several numbers of devices and networks, with sliders.

The page needs no network. Its data are the fastest meshes of each number of devices,
speed of the network, micro batch and recomputation, with seconds and bytes by part.
"""

from pathlib import Path
from typing import Any

import numpy as np

from dml.figures import pages
from dml.planner import memory, runs, search, seconds
from dml.types import BadInput
from studies.plan.question import GIB, Query

FACTORS = (0.25, 0.5, 1, 2, 4)  # of the number of devices and of the network
EACH = 3  # meshes for each choice of micro batch and recomputation
HERE = Path(__file__).parent


def write(path: Path, query: Query) -> None:
    """Write the page."""
    texts = {"title": f"{query.model} on {query.device}"}
    style = pages.style_of("dml.runs.report")
    pages.write(path, HERE, texts, export(query), style)


def export(query: Query) -> dict[str, Any]:
    """Return the data of the page."""
    chip = query.cluster.device
    counts = [max(1, int(query.cluster.devices * factor)) for factor in FACTORS]
    networks = [chip.network * factor for factor in FACTORS]
    tables = [
        [one_table(query, count, network) for network in networks]
        for count in dict.fromkeys(counts)
    ]
    return {
        "model": query.model,
        "device": query.device,
        "precision": query.cluster.precision,
        "batch": query.batch,
        "sequence": query.shape.sequence,
        "tokens": query.tokens,
        "dollars": chip.dollars,
        "limit": chip.memory,
        "devices": list(dict.fromkeys(counts)),
        "networks": networks,
        "tables": tables,
    }


def one_table(query: Query, devices: int, network: float) -> list[dict[str, Any]]:
    """Return the fastest meshes of one number of devices and network, with parts."""
    chip = query.cluster.device._replace(network=network)
    cluster = query.cluster._replace(device=chip, devices=devices)
    try:
        plans = search.plan(query.shape, cluster, query.batch, query.calibration)
    except BadInput:
        return []  # the batch cannot be divided
    groups: dict[tuple[float, float, float], int] = {}
    table, picked = plans.table, []
    for index in plans.ranked():
        group = (table.micro_batch[index], table.remat[index], table.selective[index])
        groups[group] = groups.get(group, 0) + 1
        if groups[group] <= EACH:
            picked.append(int(index))
    if not picked:
        return []
    chosen = runs.select(table, np.array(picked))
    pieces = seconds.parts(chosen, query.calibration.physics, plans.constants)
    used = memory.parts(chosen, query.calibration.sizes)
    return [
        {
            "mesh": search.describe(plans.mesh(index)),
            "options": search.options(plans.mesh(index)),
            "micro": float(table.micro_batch[index]),
            "remat": recomputed(table.remat[index], table.selective[index]),
            "parts": entries(pieces, at),
            "memory": entries(used, at, GIB),
        }
        for at, index in enumerate(picked)
    ]


def recomputed(remat: float, selective: float) -> str:
    """Return the name of the recomputation."""
    return "full" if remat else "selective" if selective else "none"


def entries(columns: dict[str, Any], index: int, unit: float = 1.0) -> dict[str, float]:
    """Return one entry of each column that is not 0, with four digits."""
    found = {}
    for name, values in columns.items():
        value = float(values[index] if np.ndim(values) else values) / unit
        if value > 1e-6:
            found[name] = float(f"{value:.4g}")
    return found
