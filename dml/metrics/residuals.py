"""LOG: what a completed matrix misses: misses and how often each column was seen in;
a histogram, and the miss by how much was known, as SVG and PNG, out.
"""

from pathlib import Path

import numpy as np

from dml.metrics.figures import save

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
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    reach = float(np.quantile(abs(misses), 0.995)) or 1.0
    left.hist(np.clip(misses, -reach, reach), BINS, color="C0")
    left.set(xlabel="predicted − rated", ylabel="held-out ratings")
    root = float(np.sqrt(np.square(misses, dtype=np.float64).mean()))
    left.set_title(f"RMSE {root:.3f}", fontsize=10)
    points = by_seen(misses, seen)
    right.plot(*points, "o-", markersize=4)
    right.axhline(root, color="gray", linestyle="--", linewidth=1)
    right.set(xlabel="ratings of the same item to learn from", ylabel="RMSE")
    if len(points[0]):  # of nothing there is no logarithm
        right.set_xscale("log")
    for axes in (left, right):
        axes.grid(alpha=0.3, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)
