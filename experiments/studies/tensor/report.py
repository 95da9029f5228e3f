"""Table and figure of tensor.py: compiled collectives compared with formulas."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab.claims import grouped, matching

from dml.figures.style import curves
from dml.runs.results import Run
from dml.runs.writers import Columns, Row
from dml.wire.mesh.traffic import WIRE, Collective, ring_bytes
from studies.tensor.cases import ALL_REDUCE, Formula

PASSES = ("forward", "backward")
COLUMNS: Columns = {
    "layer": (7, "{layer}"),
    "pass": (8, "{pass}"),
    "collective": (18, "{kind}"),
    "devices": (7, "{tensor}"),
    "compiled": (8, "{count}"),
    "equal": (5, lambda row: "yes" if equal(row) else "no"),
    "bytes sent": (11, "{bytes:,.0f}"),
    "formula": (7, lambda row: str(row["formula_count"] or "-")),
    "by formula": (11, "{formula_bytes:,.0f}"),
}


def rows(
    compiled: Sequence[Collective], name: str, size: int, formula: Formula
) -> Iterator[Row]:
    """Yield rows of the collectives of a layer, for each pass.

    There is a row per kind for collectives of the formula's size, and one row for all
    other collectives.

    compiled: collectives of the compiled program.
    name: name of the layer.
    size: number of devices.
    formula: predicted collectives.
    """
    nbytes = formula.nbytes
    for direction, counts in zip(PASSES, formula.counts, strict=True):
        of_pass = [
            collective
            for collective in compiled
            if direction == PASSES["transpose" in collective.op_name]
        ]
        compiled_kinds = [
            collective.kind for collective in of_pass if collective.nbytes == nbytes
        ]
        for kind in dict.fromkeys([*counts, *compiled_kinds]):
            matching = [
                collective
                for collective in of_pass
                if (collective.kind, collective.nbytes) == (kind, nbytes)
            ]
            count = counts.get(kind, 0)
            yield row(name, direction, size, matching) | {
                "kind": kind,
                "formula_count": count,
                "formula_bytes": count * WIRE[kind](nbytes, size),
            }
        small_bytes = formula.small if direction == PASSES[0] else 0
        small = [collective for collective in of_pass if collective.nbytes != nbytes]
        if small or small_bytes:
            yield row(name, direction, size, small) | {
                "kind": "other sizes",
                "formula_count": None,
                "formula_bytes": WIRE[ALL_REDUCE](small_bytes, size),
            }


def row(
    name: str, direction: str, size: int, group: Sequence[Collective]
) -> dict[str, Any]:
    return {
        "layer": name,
        "pass": direction,
        "tensor": size,
        "count": sum(collective.times for collective in group),
        "bytes": sum(collective.times * ring_bytes(collective) for collective in group),
    }


def equal(row: Row) -> bool:
    """Return whether compiled collectives equal the formula in count and bytes.

    The formula has no count of the smaller collectives.
    """
    equal_counts = row["formula_count"] in (None, row["count"])
    return equal_counts and row["bytes"] == row["formula_bytes"]


def block_totals(table: Sequence[Row], size: int) -> Row:
    """Return the summary of a block over `size` devices, both passes."""
    block = [row for row in table if (row["layer"], row["tensor"]) == ("block", size)]
    return {
        f"block_collectives_{size}": sum(row["count"] for row in block),
        f"block_bytes_{size}": sum(row["bytes"] for row in block),
        f"block_formula_bytes_{size}": sum(row["formula_bytes"] for row in block),
    }


def draw(path: Path, table: Sequence[Row]) -> None:
    """Draw the bytes that a device sends for each layer, compiled and by formula."""
    total: Counter[tuple[str, str, int]] = Counter()
    for row in table:
        for key in ("bytes", "formula_bytes"):
            total[row["layer"], key, row["tensor"]] += row[key]
    sizes = sorted({row["tensor"] for row in table})
    series = {
        name + label: (sizes, [total[name, key, size] for size in sizes])
        for name in dict.fromkeys(row["layer"] for row in table)
        for label, key in (("", "bytes"), (", formula", "formula_bytes"))
    }
    dashed = [name for name in series if name.endswith("formula")]
    axes = {"x": "devices", "y": "bytes sent by a device per step"}
    curves(path, series, dashed=dashed, **axes)


def verdict(summary: Row) -> str:
    """Return the published claim and the compiled program's counts."""
    equal = summary["equals_formula"]
    lines = [
        "published: 2 all-reduces of activations per block in the forward pass, and 2 "
        "in the backward pass",
        f"compiled: {'equal' if equal else 'NOT equal'} to the formula",
    ]
    for key, difference in summary.items():
        name, _, size = key.rpartition("_")
        if name == "largest_gap":
            speedup = summary.get(f"speedup_{size}")
            timing = (
                f"is {speedup:.2f} times as fast as on 1" if speedup else "is not timed"
            )
            lines.append(
                f"{size} devices: differences from the dense layers up to "
                f"{difference:.1e}; a block {timing}"
            )
    return "\n".join(lines) + "\n"


def conclude(run: Run) -> str:
    """Return the number of rows equal to the formula, and the bytes of a block."""
    rows = run.rows
    text = f"{sum(map(equal, rows))} of {len(rows)} counts of collectives and bytes "
    text += "equal the formula"
    blocks = matching(rows, layer="block")
    for size, group in grouped(blocks, "tensor").items():
        sent = sum(row["bytes"] for row in group)
        text += f"; a device of {size} sends {sent:,.0f} bytes per block"
    return f"{text}."
