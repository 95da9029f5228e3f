"""Downsampled curves of run metrics, encoded as text for a page.

Downsampling keeps the minimum and maximum of each interval of a curve.
A point has a position on each x axis (step, seconds so far, ...) and a value, as
little-endian float32.
"""

import base64
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.runs.listing import ListedRun, number, ordered

AXES = {  # column -> label of the x axis; columns other than step are summed up
    "step": "step",
    "seconds": "seconds so far",
    "words_sent": "words sent so far",
}
MAX_POINTS = 200  # per curve
MAX_FLOATS = 1_000_000  # of all curves, approximately; a float has 5.3 bytes in base64


class Curve(NamedTuple):
    """One measure of one run."""

    run: int  # index in the list of runs
    xs: np.ndarray  # a row per x axis
    values: np.ndarray


def encode_curves(
    runs: Sequence[ListedRun],
) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the curves of every numeric column of the runs as JSON values.

    The second result has the columns that have one value in all rows of all runs.
    """
    columns_by_run = [numeric_columns(run.results.rows) for run in runs]
    every = ordered(
        name for columns in columns_by_run for name in columns if name != "step"
    )
    constant = constants(every, columns_by_run)
    names = [name for name in every if name not in constant]
    axes = ["step", *(name for name in AXES if name != "step" and name in every)]
    positions_by_run = [positions(columns, axes) for columns in columns_by_run]
    count = sum(len(columns) for columns in columns_by_run)
    points = min(MAX_POINTS, max(16, MAX_FLOATS // max(1, count * (len(axes) + 1))))
    return {
        "axes": [AXES[axis] for axis in axes],
        "measures": [
            measure(name, list(curves(name, columns_by_run, positions_by_run, points)))
            for name in names
        ],
    }, constant


def constants(names: Sequence[str], columns_by_run: Any) -> dict[str, float]:
    """Return the columns with several rows that are all equal, and their values."""
    constant = {}
    for name in names:
        values = np.concatenate(
            [columns[name] for columns in columns_by_run if name in columns]
        )
        if len(values) > 1 and (values == values[0]).all():
            constant[name] = float(values[0])
    return constant


def numeric_columns(rows: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
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


def curves(name: str, columns_by_run: Any, xs_by_run: Any, points: int) -> Any:
    """Yield the curve of a column for each run that has it.

    Args:
      name: Name of the column.
      columns_by_run: Numeric columns of each run.
      xs_by_run: Positions of the rows of each run.
      points: Largest number of points.
    """
    for run, (columns, xs) in enumerate(zip(columns_by_run, xs_by_run, strict=True)):
        if name in columns:
            with np.errstate(over="ignore"):
                values = columns[name].astype(np.float32)
            finite = np.flatnonzero(np.isfinite(values))
            selected = finite[downsample(values[finite], points)]
            yield Curve(run, xs[:, selected], values[selected])


def downsample(values: np.ndarray, points: int) -> np.ndarray:
    """Return the indices of at most `points` values: the extremes of each interval."""
    size = len(values)
    if size <= points:
        return np.arange(size)
    # Two points are the ends of the curve, two points are for each interval.
    width = math.ceil(size / (points // 2 - 1))
    intervals = np.pad(values, (0, -size % width), mode="edge").reshape(-1, width)
    starts = np.arange(len(intervals)) * width
    lows, highs = (
        np.minimum(starts + extreme(intervals, axis=1), size - 1)
        for extreme in (np.argmin, np.argmax)
    )
    return np.unique(np.concatenate([lows, highs, [0, size - 1]]))


def measure(name: str, curves: Sequence[Curve]) -> dict[str, Any]:
    """Return one measure of all runs.

    The data has, for each run, its positions on each axis and then its values.
    """
    arrays = [np.vstack([curve.xs, curve.values]).astype("<f4") for curve in curves]
    data = b"".join(array.tobytes() for array in arrays)
    return {
        "name": name,
        "runs": [curve.run for curve in curves],
        "points": [len(curve.values) for curve in curves],
        "data": base64.b64encode(data).decode(),
    }
