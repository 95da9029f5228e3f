"""Figures of the errors of matrix completion."""

from pathlib import Path

import numpy as np

from dml.figures.style import drawing

BINS = 61
MIN_ENTRIES = 20  # minimum number of errors for a point of the curve


def rmse_by_count(
    errors: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return, for groups of errors, the mean count and the RMSE.

    A group has the errors whose counts have the same integer part of log2. Groups of
    fewer than MIN_ENTRIES errors are omitted.

    Args:
      errors: Errors of the held-out entries.
      counts: Number of training entries of the same item, for each error.
    """
    powers = np.log2(np.maximum(counts, 1)).astype(int)
    xs, ys = [], []
    for power in np.unique(powers):
        members = powers == power
        if members.sum() >= MIN_ENTRIES:
            xs.append(counts[members].mean())
            ys.append(np.sqrt(np.square(errors[members], dtype=np.float64).mean()))
    return np.array(xs), np.array(ys)


def residuals(path: Path, errors: np.ndarray, counts: np.ndarray) -> None:
    """Draw a histogram of errors, and the RMSE by number of training entries.

    Args:
      path: Files path.svg and path.png are written.
      errors: Errors of the held-out entries.
      counts: Number of training entries of the same item, for each error.
    """
    limit = float(np.quantile(abs(errors), 0.995)) or 1.0
    rmse = float(np.sqrt(np.square(errors, dtype=np.float64).mean()))
    points = rmse_by_count(errors, counts)
    with drawing(path, 1, 2, size=(8.4, 3.6)) as (_, (left, right)):
        left.hist(np.clip(errors, -limit, limit), BINS, color="C0")
        left.set(xlabel="predicted − rated", ylabel="held-out ratings")
        left.set_title(f"RMSE {rmse:.3f}")
        right.plot(*points, "o-")
        right.axhline(rmse, color="gray", linestyle="--", linewidth=1)
        right.set(xlabel="training ratings of the same item", ylabel="RMSE")
        if len(points[0]):  # an empty axis cannot be logarithmic
            right.set_xscale("log")
