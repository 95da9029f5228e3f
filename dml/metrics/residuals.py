"""LOG: what a completed matrix misses: misses and how often each column was seen in;
a histogram, and the miss by how much was known, as SVG and PNG, out.
"""

from pathlib import Path

import numpy as np

from dml.metrics.figures import drawing

BINS = 61
FEWEST = 20  # entries that a point stands for


def by_seen(misses: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, by powers of two of how often it was seen, the root of the mean square.

    xs and ys; groups with few entries are left out.
    """
    group = np.log2(np.maximum(seen, 1)).astype(int)
    xs, ys = [], []
    for power in np.unique(group):
        here = group == power
        if here.sum() >= FEWEST:
            xs.append(seen[here].mean())
            ys.append(np.sqrt(np.square(misses[here], dtype=np.float64).mean()))
    return np.array(xs), np.array(ys)


def residuals(path: Path, misses: np.ndarray, seen: np.ndarray) -> None:
    """Write path.svg and path.png: a histogram of misses, and their size by the seen.

    seen says how many entries of the same item there were to learn from.
    """
    reach = float(np.quantile(abs(misses), 0.995)) or 1.0
    root = float(np.sqrt(np.square(misses, dtype=np.float64).mean()))
    points = by_seen(misses, seen)
    with drawing(path, 1, 2, size=(8.4, 3.6)) as (_, (left, right)):
        left.hist(np.clip(misses, -reach, reach), BINS, color="C0")
        left.set(xlabel="predicted − rated", ylabel="held-out ratings")
        left.set_title(f"RMSE {root:.3f}")
        right.plot(*points, "o-")
        right.axhline(root, color="gray", linestyle="--", linewidth=1)
        right.set(xlabel="ratings of the same item to learn from", ylabel="RMSE")
        if len(points[0]):  # of nothing there is no logarithm
            right.set_xscale("log")
