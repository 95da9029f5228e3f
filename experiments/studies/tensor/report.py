"""Compiled collectives of cut layers and their formulas: rows, columns, a figure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dml.figures.style import curves
from dml.runs.writers import Columns, Row
from dml.wire.mesh.traffic import WIRE, Collective, sent
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
    found: Sequence[Collective], name: str, size: int, formula: Formula
) -> Iterator[Row]:
    """Yield a row for each pass and kind: of the formula's size, then of others."""
    nbytes = formula.nbytes
    for when, kinds in zip(PASSES, formula.kinds, strict=True):
        mine = [one for one in found if when == PASSES["transpose" in one.of]]
        for kind in {**kinds, **{one.kind: 0 for one in mine if one.nbytes == nbytes}}:
            some = [one for one in mine if (one.kind, one.nbytes) == (kind, nbytes)]
            count = kinds.get(kind, 0)
            yield row(name, when, size, some) | {
                "kind": kind,
                "formula_count": count,
                "formula_bytes": count * WIRE[kind](nbytes, size),
            }
        told = formula.small if when == PASSES[0] else 0
        small = [one for one in mine if one.nbytes != nbytes]
        if small or told:
            yield row(name, when, size, small) | {
                "kind": "small ones",
                "formula_count": None,
                "formula_bytes": WIRE[ALL_REDUCE](told, size),
            }


def row(name: str, when: str, size: int, some: Sequence[Collective]) -> dict[str, Any]:
    return {
        "layer": name,
        "pass": when,
        "tensor": size,
        "count": sum(one.times for one in some),
        "bytes": sum(one.times * sent(one) for one in some),
    }


def equal(row: Row) -> bool:
    """Say whether the compiled collectives are those of the formula."""
    counted = row["formula_count"] in (None, row["count"])
    return counted and row["bytes"] == row["formula_bytes"]


def block_totals(found: Sequence[Row], size: int) -> Row:
    """Return the summary of a block over so many devices, both passes."""
    block = [one for one in found if (one["layer"], one["tensor"]) == ("block", size)]
    return {
        f"block_collectives_{size}": sum(one["count"] for one in block),
        f"block_bytes_{size}": sum(one["bytes"] for one in block),
        f"block_formula_bytes_{size}": sum(one["formula_bytes"] for one in block),
    }


def draw(path: Path, found: Sequence[Row]) -> None:
    """Draw the bytes that a device sends for each layer, compiled and by formula."""
    total: Counter[tuple[str, str, int]] = Counter()
    for one in found:
        for key in ("bytes", "formula_bytes"):
            total[one["layer"], key, one["tensor"]] += one[key]
    sizes = sorted({one["tensor"] for one in found})
    series = {
        name + label: (sizes, [total[name, key, size] for size in sizes])
        for name in dict.fromkeys(one["layer"] for one in found)
        for label, key in (("", "bytes"), (", formula", "formula_bytes"))
    }
    dashed = [name for name in series if name.endswith("formula")]
    axes = {"x": "devices", "y": "bytes a device sends in a step"}
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
