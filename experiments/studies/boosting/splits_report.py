"""Columns, figure and conclusion of boosting_splits.py."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.claims import rows
from lab.writing import flatten_rows

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, scaled_cell

SPLITS = "rows", "columns", "grid"
TABLES: dict[str, Columns] = {
    "splits": {
        "p": (5, "{p:,}"),
        **{
            f"ms {name}": (10, scaled_cell(f"seconds_{name}", 1e3, ",.2f"))
            for name in SPLITS
        },
        "R x C": (7, "{shape}"),
        **{
            f"Mwords {name}": (14, scaled_cell(f"words_{name}", 1e-6, ",.3f"))
            for name in SPLITS
        },
        "fewer": (7, "{fewer:,.0f}"),
    },
    "counted": {
        "R x C": (7, "{split}"),
        "p": (5, "{p:,}"),
        "words": (16, "{words:,}"),
        "formula": (16, "{formula:,}"),
        "ms": (10, scaled_cell("seconds", 1e3, ",.2f")),
        "predicted": (10, scaled_cell("predicted", 1e3, ",.2f")),
        "hash": (16, lambda row: row["sha256"][:16]),
    },
    "bins": {"bins": (5, "{bins}"), "AUC": (8, "{auc:.5f}")},
    "votes": {
        "columns": (9, "{columns:,}"),
        "split": (6, "{split}"),
        "words a tree": (14, "{words:,.0f}"),
        "AUC": (8, "{auc:.5f}"),
    },
}
TITLES = {
    "splits": "milliseconds and words of a tree, by number of cores, by formula",
    "counted": "the same on virtual ranks, with the hash of the model",
    "bins": "area under the curve by number of bins; the last has one for each value",
    "votes": "words of a tree and area, with 20 elected columns and with all",
}


def summarize(tables: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """Return the flat summary."""
    first = tables["splits"][0]
    names = [key for key in first if key.startswith(("seconds", "words"))]
    found = flatten_rows(tables["splits"], "{p}_{key}", *names, "fewer")
    keys = "words", "formula", "seconds", "predicted"
    found |= flatten_rows(tables["counted"], "{split}_{key}", *keys)
    found |= {key: first[key] for key in ("stored_additions", "all_additions")}
    hashes = {row["sha256"] for row in tables["counted"]}
    return found | {"models": len(hashes), "sha256": min(hashes)}


def conclude(run: Run) -> str:
    """Return the share of words that columns save, and the fastest split."""
    last = rows(run, table="splits")[-1]
    counted, summary = rows(run, table="counted"), run.summary
    error = max(abs(row["words"] / max(row["formula"], 1) - 1) for row in counted)
    best = min(SPLITS, key=lambda name: last[f"seconds_{name}"])
    first = rows(run, table="splits")[0]
    times = {name: first["seconds_rows"] / last[f"seconds_{name}"] for name in SPLITS}
    return (
        f"On {last['p']:,} cores, columns send {last['fewer']:,.0f} times fewer words "
        f"than rows. A tree is {times[best]:,.3g} times faster than on one core with "
        f"{best}, {times['rows']:,.3g} times with rows. Virtual ranks of "
        f"{len(counted)} grids have {summary['models']} "
        f"{'model' if summary['models'] == 1 else 'models'}, and send the words of the "
        f"formula within {error:.2g}."
    )


def draw(path: Path, found: Sequence[Row]) -> None:
    """Draw seconds and words of a tree by number of cores."""
    sizes = [row["p"] for row in found]
    with figures.drawing(path, 1, 2, size=(9.6, 3.9)) as (_, panels):
        for axes, key in zip(panels, ("seconds", "words"), strict=True):
            for name in SPLITS:
                shown = [row[f"{key}_{name}"] or float("nan") for row in found]
                axes.plot(sizes, shown, marker="o", label=name)
            axes.set(xlabel="p", ylabel=f"{key} of a tree", xscale="log", yscale="log")
        panels[0].legend()
