"""The figure of `topology.py`: seconds by bytes, a panel for a network and p."""

from collections.abc import Sequence
from pathlib import Path

from dml.metrics.figures import save
from dml.metrics.writers import Row

ACROSS = 3  # panels in a row


def draw(path: Path, rows: Sequence[Row], names: Sequence[str]) -> None:
    """Draw every all-reduce's line, up to the slowest but one; mark the fastest."""
    from matplotlib.figure import Figure

    keys = list(dict.fromkeys((row["network"], row["p"]) for row in rows))
    down = -(-len(keys) // ACROSS)
    figure = Figure(figsize=(11.5, 0.6 + 3.1 * down), layout="constrained")
    panels = figure.subplots(down, ACROSS, squeeze=False, sharey=True).flat
    for axes, key in zip(panels, keys, strict=False):
        some = [row for row in rows if (row["network"], row["p"]) == key]
        sizes = [row["bytes"] for row in some]
        for number, name in enumerate(names):
            took = [row[f"{name}_seconds"] for row in some]
            axes.plot(sizes, took, "-", color=f"C{number}", linewidth=1.3, label=name)
            best = [row for row in some if row["best"] == name]
            points = [row["bytes"] for row in best], [row["seconds"] for row in best]
            axes.plot(*points, "o", color=f"C{number}", markersize=6)
        axes.set(title=f"{key[0]}, p = {key[1]}", xscale="log", yscale="log")
        axes.grid(alpha=0.3, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    slowest = [sorted(row[f"{name}_seconds"] for name in names) for row in rows]
    figure.axes[0].set_ylim(top=2 * max(took[-2:][0] for took in slowest))
    for axes in list(panels):
        axes.set_axis_off()  # those that are left over
    figure.supxlabel("bytes a rank", fontsize=10)
    figure.supylabel("seconds (dots: the fastest)", fontsize=10)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    save(figure, path)
