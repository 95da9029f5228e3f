"""What `hybrid.py` says of each mesh: a row, the loss curves, and the verdict."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dml.metrics import figures
from dml.metrics.writers import Row, Writer
from dml.types import Step

MB = 1e6
CLOSE = 1e-4  # of a loss: float32 sums in other orders, through so many updates
BYTES = ("held", "temporary", "tensor", "stage", "data")


def row(
    name: str, steps: Iterable[Step], tokens: int, first: Sequence[Row]
) -> dict[str, Any]:
    """Train, and return what a table shows; first holds one device's row, or none."""
    losses, seconds, measures = [], [], dict[str, float]()
    for step in steps:
        losses.append(step.loss)
        seconds.append(sum(step.seconds.values()))
        measures = dict(step.measures)
    reference = first[0]["losses"] if first else losses
    apart = float(np.abs(np.array(losses) - reference).max())
    later = seconds[1:] or seconds  # the first one compiles
    return {
        "mesh": name,
        "first_seconds": seconds[0],
        "tokens_per_second": tokens / float(np.median(later)),
        **{f"{what}_mb": megabytes(measures, what) for what in BYTES},
        "loss": losses[-1],
        "apart": apart,
        "losses": losses,
    }


def megabytes(measures: Mapping[str, float], what: str) -> float | None:
    """Return a measure of a step in MB; None where it is not known."""
    for key in (f"bytes_{what}", f"{what}_bytes"):
        if key in measures:
            return measures[key] / MB
    return None


def said(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}"


COLUMNS = {
    "mesh": (24, lambda row: row["mesh"]),
    "first s": (7, lambda row: f"{row['first_seconds']:.1f}"),
    "tokens/s": (8, lambda row: f"{row['tokens_per_second']:,.0f}"),
    "held MB": (7, lambda row: said(row["held_mb"])),
    "temporary": (9, lambda row: said(row["temporary_mb"])),
    "sent MB: tensor": (15, lambda row: said(row["tensor_mb"])),
    "stage": (6, lambda row: said(row["stage_mb"])),
    "data": (6, lambda row: said(row["data_mb"])),
    "last loss": (9, lambda row: f"{row['loss']:.5f}"),
    "apart": (8, lambda row: f"{row['apart']:.1e}"),
}


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return whether all meshes have learned the same, and the fastest of them."""
    apart = max(row["apart"] for row in rows)
    meshes = rows[1:]
    fastest = max(meshes, key=lambda row: row["tokens_per_second"])
    return {
        "meshes": len(meshes),
        "loss": rows[0]["loss"],
        "apart": apart,
        "verdict": "the same curve" if apart <= CLOSE else "other curves",
        "fastest": fastest["mesh"],
        "tokens_per_second": fastest["tokens_per_second"],
    }


@contextmanager
def chart(path: Path) -> Iterator[Writer]:
    """Draw the loss of every mesh and say the verdict, when the summary comes."""
    rows: list[Row] = []

    def finish(summary: Row) -> None:
        curves = {
            row["mesh"]: (range(1, 1 + len(row["losses"])), row["losses"])
            for row in rows
        }
        figures.curves(path, curves, x="step", y="loss")
        sys.stdout.write(
            f"{summary['meshes']} meshes: {summary['verdict']} as one device, apart by "
            f"at most {summary['apart']:.1e}\n"
        )

    yield Writer(rows.append, finish)
