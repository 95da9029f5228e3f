"""Rows of stragglers.py in; a table, its summary and a panel for each law out."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dml.metrics.figures import save
from dml.metrics.writers import Row, Writer
from dml.sim.laws import law


def seen(name: str, form: str) -> Callable[[Row], str]:
    return lambda row: "-" if row[name] is None else format(row[name], form)


COLUMNS: dict[str, tuple[int, Callable[[Row], str]]] = {
    "law": (25, lambda row: row["law"]),
    "workers": (7, lambda row: f"{row['workers']:,}"),
    "way": (12, lambda row: row["way"]),
    "grads": (6, lambda row: f"{row['grads']:,}"),
    "formula": (8, seen("formula", ".3f")),
    "max-plus": (8, seen("maxplus", ".3f")),
    "virtual": (8, seen("virtual", ".3f")),
    "off": (7, seen("off", ".0e")),
    "measured": (8, seen("measured", ".3f")),
    "grads/s": (8, seen("grads_per_second", ",.2f")),
}


STYLES = {  # of a row's columns
    "formula": ("-", "formula"),
    "maxplus": ("o", "max-plus"),
    "virtual": ("x", "virtual ranks"),
    "measured": ("s", "real ranks"),
}


@contextmanager
def chart(path: Path) -> Iterator[Writer]:
    """Collect rows; draw them when the summary comes."""
    rows: list[Row] = []
    yield Writer(rows.append, lambda summary: draw(path, rows))


def draw(path: Path, rows: Sequence[Row]) -> None:
    from matplotlib.figure import Figure

    texts = list(dict.fromkeys(row["law"] for row in rows))
    figure = Figure(figsize=(4.3 * len(texts) + 2, 4.2), layout="constrained")
    panels = figure.subplots(1, len(texts), squeeze=False)[0]
    for axes, text in zip(panels, texts, strict=True):
        panel(axes, text, [row for row in rows if row["law"] == text])
    first = panels[0]
    first.set_ylabel("seconds a step")
    handles, labels = first.get_legend_handles_labels()
    for style, label in STYLES.values():
        handles += first.plot([], [], style, color="gray", fillstyle="none")
        labels.append(label)
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    save(figure, path)


def panel(axes: Any, text: str, rows: Sequence[Row]) -> None:
    workers = sorted({row["workers"] for row in rows})
    n = np.geomspace(workers[0], workers[-1], 100)
    # For c + Exp(mu) this is c + (ln n + Euler's gamma)/mu, the line of log n.
    rare = law(text).tail(np.exp(-np.euler_gamma) / n) / law(text).speeds[0]
    axes.plot(n, rare, ":", color="black", label="exceeded once in 1.78 n draws")
    for number, way in enumerate(dict.fromkeys(row["way"] for row in rows)):
        mine = sorted((r for r in rows if r["way"] == way), key=lambda r: r["workers"])
        axes.plot([], [], color=f"C{number}", linewidth=3, label=way)
        for column, (style, _) in STYLES.items():
            points = [(r["workers"], r[column]) for r in mine if r[column] is not None]
            if points:
                axes.plot(
                    *zip(*points, strict=True),
                    style,
                    color=f"C{number}",
                    fillstyle="none",
                    linewidth=1.2,
                    markersize=6,
                )
    axes.set(title=text, xlabel="workers", xscale="log", ylim=(0, None))
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def totals(row: Row) -> Row:
    """What the summary says of a row: by law, way and workers."""
    name = f"{row['law'].split(':')[0]}_{row['way']}_{row['workers']}".replace(" ", "_")
    found = {name: row["maxplus"], f"{name}_off": row["off"]}
    if row["measured"]:
        found[f"{name}_measured_to_virtual"] = row["measured"] / row["virtual"]
    return found
