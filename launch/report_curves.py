"""Downsampled curves of run metrics, packed for a page.

Downsampling keeps the minimum and maximum of each interval of a curve.
A point is (step, seconds so far, ..., value), each a little-endian float32.
"""

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from report_runs import ListedRun, number, ordered

AGAINST = {  # x axes: step, or the cumulative sum of a column
    "step": "step",
    "seconds": "seconds so far",
    "words_sent": "words sent so far",
}
POINTS = 200  # most points of a curve
FLOATS = 1_000_000  # approximate maximum of all curves; base64 uses 5.3 bytes per float


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
    """Return the value of each row on each axis; NaN on an axis that a run lacks."""
    step = columns["step"]
    missing = np.full(len(step), np.nan)
    with np.errstate(over="ignore"):
        sums = [
            np.cumsum(np.nan_to_num(columns[axis])) if axis in columns else missing
            for axis in axes[1:]
        ]
        places = np.array([step, *sums], np.float32)
    return np.where(np.isfinite(places), places, np.float32(np.nan))


def curves(name: str, columns: Any, places: Any, points: int) -> Any:
    for run, (column, xs) in enumerate(zip(columns, places, strict=True)):
        if name in column:
            with np.errstate(over="ignore"):
                values = column[name].astype(np.float32)
            at = np.flatnonzero(np.isfinite(values))
            at = at[kept(values[at], points)]
            yield Curve(run, xs[:, at], values[at])


def kept(values: np.ndarray, points: int) -> np.ndarray:
    """Return the indices of at most `points` values: the extremes of each part."""
    size = len(values)
    if size <= points:
        return np.arange(size)
    width = -(-size // (points // 2 - 1))  # two points are the ends
    stretches = np.pad(values, (0, -size % width), mode="edge").reshape(-1, width)
    starts = np.arange(len(stretches)) * width
    lows, highs = (
        np.minimum(starts + best(stretches, axis=1), size - 1)
        for best in (np.argmin, np.argmax)
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
