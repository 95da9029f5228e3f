"""What is left of `scaling.py`: a figure of speed-ups, and the summary."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scaling_model import BY_HAND

from dml.metrics.figures import save
from dml.metrics.writers import Row, Writer


@contextmanager
def chart(path: Path) -> Iterator[Writer]:
    """Draw speed-ups by workers when the summary comes."""
    rows: list[Row] = []

    def draw(summary: Row) -> None:
        some = [row for row in rows if row["table"] == "prediction"]
        save(drawn(some), path)

    yield Writer(rows.append, draw)


def drawn(rows: Sequence[Row]) -> Any:
    """Draw a panel with and one without overlap; say below what binds the best."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 4.4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, overlap in zip(panels, (False, True), strict=True):
        some = [row for row in rows if row["overlap"] == overlap]
        sizes = [row["p"] for row in some]
        axes.plot(sizes, sizes, "--", color="gray", label="linear")
        for name in BY_HAND:
            ups = [row[f"{name}_speedup"] for row in some]
            axes.plot(sizes, ups, "o-", markersize=3.5, linewidth=1.4, label=name)
        for before, row in zip([{"binds": ""}, *some], some, strict=False):
            if row["binds"] != before["binds"]:
                axes.axvline(row["p"], color="gray", linestyle=":", linewidth=1)
                axes.annotate(
                    f"{row['binds']} binds ",
                    (row["p"], 0.98),
                    xycoords=("data", "axes fraction"),
                    rotation=90,
                    fontsize=8,
                    va="top",
                    ha="left",
                )
        axes.set_title("overlapped with the backward pass" if overlap else "in turn")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.set_xlabel("workers")
        axes.grid(alpha=0.3, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("speed-up")
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside right center",
        frameon=False,
    )
    return figure


def totals(tables: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """Return what the summary says, flat."""
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
