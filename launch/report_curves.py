"""Downsampled curves of run metrics, packed for a page.

Downsampling keeps the minimum and maximum of each interval of a curve.
A point is (step, seconds so far, ..., value), each a little-endian float32.
"""

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from report_runs import ListedRun, number, ordered

AGAINST = {  # labels of the x axes: step, and cumulative sums of columns
    "step": "step",
    "seconds": "seconds so far",
    "words_sent": "words sent so far",
}
POINTS = 200  # largest number of points of a curve
FLOATS = 1_000_000  # limit for all curves, approximately; base64 has 5.3 bytes a float


class Curve(NamedTuple):
    """One measure of one run."""

    run: int
    xs: np.ndarray  # one row for each of the axes
    values: np.ndarray


def packed(runs: Sequence[ListedRun]) -> dict[str, Any]:
    """Return every numeric column of the runs' rows, packed for a page."""
    columns = [table(each.run.rows) for each in runs]
    names = ordered(name for column in columns for name in column if name != "step")
    axes = ["step", *(name for name in AGAINST if name != "step" and name in names)]
    positions_by_run = [positions(column, axes) for column in columns]
    count = sum(len(column) for column in columns)
    points = min(POINTS, max(16, FLOATS // max(1, count * (len(axes) + 1))))
    return {
        "axes": [AGAINST[axis] for axis in axes],
        "measures": [
            measure(name, list(curves(name, columns, positions_by_run, points)))
            for name in names
        ],
    }


def table(rows: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Return the numeric columns; non-numeric entries become NaN."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {"step": np.arange(1.0, len(rows) + 1)}  # default step: the row number
    for name in names:
        numbers = [number(row.get(name)) for row in rows]
        column = np.array(
            [np.nan if value is None else value for value in numbers], float
        )
        finite = np.isfinite(column)
        if name == "step":
            columns["step"] = np.where(finite, column, columns["step"])
        elif finite.any():
            columns[name] = column
    return columns


def positions(columns: dict[str, np.ndarray], axes: Sequence[str]) -> np.ndarray:
    """Return the x value of each row on each axis; NaN on an axis that a run lacks."""
    step = columns["step"]
    missing = np.full(len(step), np.nan)
    with np.errstate(over="ignore"):
        sums = [
            np.cumsum(np.nan_to_num(columns[axis])) if axis in columns else missing
            for axis in axes[1:]
        ]
        xs = np.array([step, *sums], np.float32)
    return np.where(np.isfinite(xs), xs, np.float32(np.nan))


def curves(name: str, columns: Any, xs_by_run: Any, points: int) -> Any:
    """Yield the curve of a column for each run that has it.

    Args:
      name: Name of the column.
      columns: Numeric columns of each run.
      xs_by_run: Positions of the rows of each run.
      points: Largest number of points.
    """
    for run, (column, xs) in enumerate(zip(columns, xs_by_run, strict=True)):
        if name in column:
            with np.errstate(over="ignore"):
                values = column[name].astype(np.float32)
            index = np.flatnonzero(np.isfinite(values))
            index = index[kept(values[index], points)]
            yield Curve(run, xs[:, index], values[index])


def kept(values: np.ndarray, points: int) -> np.ndarray:
    """Return the indices of at most `points` values: the extremes of each part."""
    size = len(values)
    if size <= points:
        return np.arange(size)
    width = -(-size // (points // 2 - 1))  # two points are the ends of the curve
    parts = np.pad(values, (0, -size % width), mode="edge").reshape(-1, width)
    starts = np.arange(len(parts)) * width
    lows, highs = (
        np.minimum(starts + extreme(parts, axis=1), size - 1)
        for extreme in (np.argmin, np.argmax)
    )
    return np.unique(np.concatenate([lows, highs, [0, size - 1]]))


def measure(name: str, curves: Sequence[Curve]) -> dict[str, Any]:
    """Return one measure of all runs; each run's axes come before its values."""
    parts = [np.vstack([each.xs, each.values]).astype("<f4") for each in curves]
    data = b"".join(part.tobytes() for part in parts)
    return {
        "name": name,
        "runs": [each.run for each in curves],
        "points": [len(each.values) for each in curves],
        "data": base64.b64encode(data).decode(),
    }
