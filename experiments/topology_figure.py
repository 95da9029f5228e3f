"""The figure of `topology.py`: seconds by bytes, a panel for a network and p."""

from collections.abc import Sequence
from pathlib import Path

from dml.metrics import figures
from dml.metrics.writers import Row

ACROSS = 3  # panels in a row


def draw(path: Path, rows: Sequence[Row], names: Sequence[str]) -> None:
    """Draw a line for each all-reduce, up to the slowest but one; mark the fastest."""
    keys = list(dict.fromkeys((row["network"], row["p"]) for row in rows))
    down = -(-len(keys) // ACROSS)
    slowest = [sorted(row[f"{name}_seconds"] for name in names) for row in rows]
    size = (11.5, 0.6 + 3.1 * down)
    with figures.drawing(path, down, ACROSS, size=size, sharey=True) as drawing:
        figure, panels = drawing
        for axes, key in zip(panels, keys, strict=False):
            some = [row for row in rows if (row["network"], row["p"]) == key]
            sizes = [row["bytes"] for row in some]
            for number, name in enumerate(names):
                took = [row[f"{name}_seconds"] for row in some]
                axes.plot(sizes, took, color=f"C{number}", label=name)
                best = [row for row in some if row["best"] == name]
                points = [r["bytes"] for r in best], [r["seconds"] for r in best]
                axes.plot(*points, "o", color=f"C{number}", markersize=6)
            axes.set(title=f"{key[0]}, p = {key[1]}", xscale="log", yscale="log")
        panels[0].set_ylim(top=2 * max(took[-2:][0] for took in slowest))
        for axes in panels[len(keys) :]:
            axes.set_axis_off()
        figure.supxlabel("bytes a rank", fontsize=10)
        figure.supylabel("seconds (dots: the fastest)", fontsize=10)
        figures.legend(figure)
