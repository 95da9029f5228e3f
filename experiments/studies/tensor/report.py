"""Table and figure of tensor.py: compiled collectives compared with formulas."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dml.figures.style import curves
from dml.runs.writers import Columns, Row
from dml.wire.mesh.traffic import WIRE, Collective, ring_bytes
from studies.tensor.cases import ALL_REDUCE, Formula

PASSES = ("forward", "backward")
COLUMNS: Columns = {
    "layer": (7, "{layer}"),
    "pass": (8, "{pass}"),
    "collective": (18, "{kind}"),
    "tensor": (6, "{tensor}"),
    "compiled": (8, "{count}"),
    "formula": (7, lambda row: str(row["formula_count"] or "-")),
    "bytes sent": (11, "{bytes:,.0f}"),
    "by formula": (11, "{formula_bytes:,.0f}"),
    "equal": (5, lambda row: "yes" if equal(row) else "no"),
}


def rows(
    compiled: Sequence[Collective], name: str, size: int, formula: Formula
) -> Iterator[Row]:
    """Yield a row for each pass and kind of collective.

    Collectives of the formula's size have a row each; all others share a row.
    """
    nbytes = formula.nbytes
    for direction, kinds in zip(PASSES, formula.kinds, strict=True):
        of_pass = [
            collective
            for collective in compiled
            if direction == PASSES["transpose" in collective.op_name]
        ]
        for kind in {
            **kinds,
            **{
                collective.kind: 0
                for collective in of_pass
                if collective.nbytes == nbytes
            },
        }:
            matching = [
                collective
                for collective in of_pass
                if (collective.kind, collective.nbytes) == (kind, nbytes)
            ]
            count = kinds.get(kind, 0)
            yield row(name, direction, size, matching) | {
                "kind": kind,
                "formula_count": count,
                "formula_bytes": count * WIRE[kind](nbytes, size),
            }
        small_bytes = formula.small if direction == PASSES[0] else 0
        small = [collective for collective in of_pass if collective.nbytes != nbytes]
        if small or small_bytes:
            yield row(name, direction, size, small) | {
                "kind": "small ones",
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
    """Return whether compiled collectives equal the formula in count and bytes."""
    counted = row["formula_count"] in (None, row["count"])
    return counted and row["bytes"] == row["formula_bytes"]


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
    says = "as the formula says" if summary["as_the_formula_says"] else "NOT SO"
    lines = [
        "published: 2 all-reduces of a stream forward and 2 backward a block; "
        "tensor 2 is asked to be 1.3 times as fast as 1",
        f"compiled: {says}",
    ]
    for key, gap in summary.items():
        name, _, size = key.rpartition("_")
        if name == "largest_gap":
            speed = summary.get(f"speedup_{size}")
            lines.append(
                f"{size} devices: {gap:.1e} from the dense layers; a block "
                + (f"{speed:.2f} times as fast as on 1" if speed else "not timed")
            )
    return "\n".join(lines) + "\n"
