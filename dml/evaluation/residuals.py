"""Figures of the errors of matrix completion."""

from pathlib import Path

import numpy as np

from dml.figures.style import drawing

BINS = 61
MIN_ENTRIES = 20  # least number of entries for a point of the curve


def by_seen(errors: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of `seen` and the RMSE, for groups by powers of two of `seen`.

    Groups with few entries are omitted.
    """
    group = np.log2(np.maximum(seen, 1)).astype(int)
    xs, ys = [], []
    for power in np.unique(group):
        members = group == power
        if members.sum() >= MIN_ENTRIES:
            xs.append(seen[members].mean())
            ys.append(np.sqrt(np.square(errors[members], dtype=np.float64).mean()))
    return np.array(xs), np.array(ys)


def residuals(path: Path, errors: np.ndarray, seen: np.ndarray) -> None:
    """Draw a histogram of errors, and the RMSE by the training entries of the item.

    Args:
      path: Name of path.svg and path.png.
      errors: Errors of the held-out entries.
      seen: Number of training entries of the same item, for each error.
    """
    limit = float(np.quantile(abs(errors), 0.995)) or 1.0
    rmse = float(np.sqrt(np.square(errors, dtype=np.float64).mean()))
    points = by_seen(errors, seen)
    with drawing(path, 1, 2, size=(8.4, 3.6)) as (_, (left, right)):
        left.hist(np.clip(errors, -limit, limit), BINS, color="C0")
        left.set(xlabel="predicted − rated", ylabel="held-out ratings")
        left.set_title(f"RMSE {rmse:.3f}")
        right.plot(*points, "o-")
        right.axhline(rmse, color="gray", linestyle="--", linewidth=1)
        right.set(xlabel="training ratings of the same item", ylabel="RMSE")
        if len(points[0]):  # an empty axis cannot be logarithmic
            right.set_xscale("log")
