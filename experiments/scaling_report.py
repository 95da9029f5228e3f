"""The figure of speed-ups and the summary of `scaling.py`."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from scaling_model import BY_HAND

from dml.metrics import figures
from dml.metrics.writers import Row, Writer, collected


def chart(path: Path) -> AbstractContextManager[Writer]:
    """Draw speed-ups by workers when the summary comes."""
    return collected(
        lambda rows, _: draw(path, [r for r in rows if r["table"] == "prediction"])
    )


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw a panel with and one without overlap, and the limits of the best."""
    with figures.drawing(path, 1, 2, size=(11.5, 4.4), sharey=True) as drawing:
        figure, panels = drawing
        for axes, overlap in zip(panels, (False, True), strict=True):
            some = [row for row in rows if row["overlap"] == overlap]
            sizes = [row["p"] for row in some]
            axes.plot(sizes, sizes, "--", color="gray", label="linear")
            for name in BY_HAND:
                axes.plot(sizes, [r[f"{name}_speedup"] for r in some], "o-", label=name)
            for before, row in zip([{"binds": ""}, *some], some, strict=False):
                if row["binds"] != before["binds"]:
                    axes.axvline(row["p"], color="gray", linestyle=":", linewidth=1)
                    figures.note(axes, f"{row['binds']} binds ", row["p"], ha="left")
            title = "overlapped with the backward pass" if overlap else "in turn"
            axes.set(title=title, xlabel="workers", yscale="log")
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, [str(size) for size in sizes])
        panels[0].set_ylabel("speed-up")
        figures.legend(figure)


def totals(tables: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """Return the summary of all tables."""
    found: dict[str, Any] = {}
    for row in tables["prediction"]:
        end = f"{'_overlapped' if row['overlap'] else ''}_{row['p']}"
        for key in ("speedup", "efficiency", "best", "binds"):
            found[f"{key}{end}"] = row[key]
    for row in tables["bert"]:
        job = row["job"].replace(", ", "_").replace(" ", "_")
        for size in (1024, 1472):
            found[f"bert_{job}_{size}"] = row[f"efficiency_{size}"]
            found[f"bert_{job}_error_{size}"] = row[f"error_{size}"]
    for row in tables["measured"]:
        found[f"{row['algorithm']}_predicted_over_measured"] = (
            row["predicted_seconds"] / row["seconds"]
        )
    return found
