"""Rows, loss curves and conclusion of hybrid.py."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Row, Writer, collector
from dml.train import Curve
from studies.deep.comparison import largest_difference

CLOSE = 1e-4  # tolerance of a loss: meshes add float32 numbers in other orders
MEASURES = {  # measure of a Step, in bytes: column, in MB
    "bytes_held": "held_mb",
    "bytes_temporary": "temporary_mb",
    "tensor_bytes": "tensor_mb",
    "stage_bytes": "stage_mb",
    "data_bytes": "data_mb",
}


def row(
    name: str, result: Curve, tokens: int, reference_rows: Sequence[Row]
) -> dict[str, Any]:
    """Return the row of a mesh.

    Args:
        name: the mesh.
        result: losses and measures of its training.
        tokens: tokens of a minibatch.
        reference_rows: the row of one device; empty for that row itself.
    """
    seconds = [row["seconds"] for row in result.rows]
    reference = reference_rows[0]["losses"] if reference_rows else result.losses
    later = seconds[1:] or seconds  # the first step compiles
    return {
        "mesh": name,
        "first_seconds": seconds[0],
        "tokens_per_second": tokens / float(np.median(later)),
        **{mb: megabytes(result.summary, key) for key, mb in MEASURES.items()},
        "loss": result.losses[-1],
        "loss_difference": largest_difference(result.losses, reference),
        "losses": result.losses,
    }


def megabytes(measures: Mapping[str, Any], name: str) -> float | None:
    """Return a measure in MB; None if it was not measured."""
    return measures[name] / 1e6 if name in measures else None


def optional_number(key: str) -> Any:
    """Return a column's text of a number; empty for None."""
    return lambda row: "" if row[key] is None else f"{row[key]:.2f}"


FLOOR = 1e-8  # least loss difference in the figure
OUTSIDE = "outside right center"  # place of the legend
COLUMNS = {
    "mesh": (24, "{mesh}"),
    "tokens/s": (8, "{tokens_per_second:,.0f}"),
    "held MB": (7, optional_number("held_mb")),
    "last loss": (9, "{loss:.5f}"),
    "loss diff": (9, "{loss_difference:.1e}"),
    "first s": (7, "{first_seconds:.1f}"),
    "temporary": (9, optional_number("temporary_mb")),
    "sent MB: tensor": (15, optional_number("tensor_mb")),
    "stage": (6, optional_number("stage_mb")),
    "data": (6, optional_number("data_mb")),
}


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return whether losses equal those of one device, and the fastest mesh."""
    difference = max(row["loss_difference"] for row in rows)
    meshes = rows[1:]
    fastest = max(meshes, key=lambda row: row["tokens_per_second"])
    return {
        "meshes": len(meshes),
        "loss": rows[0]["loss"],
        "loss_difference": difference,
        "verdict": "equal" if difference <= CLOSE else "not equal",
        "fastest": fastest["mesh"],
        "tokens_per_second": fastest["tokens_per_second"],
    }


def conclude(run: Run) -> str:
    """Return the result in one sentence."""
    summary = run.summary
    return (
        f"The losses of {summary['meshes']} meshes are {summary['verdict']} to those "
        f"of one device, with differences up to {summary['loss_difference']:.1e}; the "
        f"fastest mesh is {summary['fastest']} with "
        f"{summary['tokens_per_second']:,.0f} tokens/s."
    )


def chart(path: Path) -> AbstractContextManager[Writer]:
    """Draw the loss of one mesh, and the differences of the others from it."""

    def finish(rows: Sequence[Row], summary: Row) -> None:
        first, *others = rows
        steps = range(1, 1 + len(first["losses"]))
        with figures.drawing(path, 1, 2, size=(10.5, 4.0)) as (figure, (left, right)):
            left.plot(steps, first["losses"], label=first["mesh"])
            left.set(title=f"mesh {first['mesh']}", xlabel="step", ylabel="loss")
            for row in others:
                differences = np.abs(np.subtract(row["losses"], first["losses"]))
                right.plot(steps, np.maximum(differences, FLOOR), label=row["mesh"])
            right.set(title=f"difference of other meshes (at least {FLOOR:g})")
            right.set(xlabel="step", ylabel="loss difference", yscale="log")
            for axes in (left, right):
                figures.whole_ticks(axes.xaxis)
            if others:
                figure.legend(*right.get_legend_handles_labels(), loc=OUTSIDE)

    return collector(finish)
