"""Draws in; rows, a table, a summary and a figure with a panel for each law out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from stragglers_ranks import Starts, virtual
from stragglers_ways import Way

from dml.metrics.figures import save
from dml.metrics.writers import Row, Writer
from dml.sim.laws import Law, law
from dml.sim.maxplus import pace


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


def compared(
    one: Law,
    table: Mapping[str, Way],
    draws_TxP: np.ndarray,
    steps: int,
    real: Starts | None = None,
) -> Iterator[Row]:
    """Time a step of each way; virtual ranks, and real ones, ran the first draws."""
    few_TxP = draws_TxP[:steps]
    ran = virtual(table, few_TxP)
    for name, way in table.items():
        wanted_TxP = way.oracle(few_TxP)
        off_TxP = np.abs(ran[name] - wanted_TxP) / (wanted_TxP.max() or 1)
        maxplus = pace(way.oracle(draws_TxP), skip=len(draws_TxP) // 5)
        yield {
            "workers": few_TxP.shape[1],
            "way": name,
            "grads": way.gradients,
            "formula": way.closed(one),
            "maxplus": maxplus,
            "virtual": pace(ran[name]),
            "off": float(off_TxP.max()),
            "measured": pace(real[name]) if real else None,
            "grads_per_second": way.gradients / maxplus if maxplus else None,
        }


MARKS = {  # of a row's columns
    "maxplus": ("o", "max-plus"),
    "virtual": ("x", "virtual ranks, few steps"),
    "measured": ("s", "real ranks, few steps"),
}
Table = Callable[[int], Mapping[str, Way]]  # of the ways, for so many workers


@contextmanager
def chart(path: Path, table: Table) -> Iterator[Writer]:
    """Collect rows; draw them when the summary comes."""
    rows: list[Row] = []
    yield Writer(rows.append, lambda summary: draw(path, rows, table))


def draw(path: Path, rows: Sequence[Row], table: Table) -> None:
    from matplotlib.figure import Figure

    texts = list(dict.fromkeys(row["law"] for row in rows))
    figure = Figure(figsize=(4.3 * len(texts) + 2, 4.2), layout="constrained")
    panels = figure.subplots(1, max(1, len(texts)), squeeze=False)[0]
    for axes, text in zip(panels, texts, strict=False):
        panel(axes, text, [row for row in rows if row["law"] == text], table)
    first = panels[0]
    first.set_ylabel("seconds a step")
    handles, labels = first.get_legend_handles_labels()
    for style, label in (("-", "formula"), *MARKS.values()):
        handles += first.plot([], [], style, color="gray", fillstyle="none")
        labels.append(label)
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    save(figure, path)


def panel(axes: Any, text: str, rows: Sequence[Row], table: Table) -> None:
    one, sizes = law(text), [row["workers"] for row in rows]
    many = [round(n) for n in np.geomspace(min(sizes), max(sizes), 40)]
    for number, name in enumerate(table(1)):
        colour = {"color": f"C{number}", "fillstyle": "none"}
        axes.plot([], [], label=name, linewidth=3, **colour)
        formula = [table(n)[name].closed(one) for n in many]
        if None not in formula:
            axes.plot(many, formula, linewidth=1.2, **colour)
        mine = [row for row in rows if row["way"] == name]
        for column, (style, _) in MARKS.items():
            seen = [row for row in mine if row[column] is not None]
            xs, ys = [r["workers"] for r in seen], [r[column] for r in seen]
            axes.plot(xs, ys, style, markersize=6, **colour)
    if text.startswith("shifted_exponential"):
        # What one of n e^γ draws exceeds: c + (ln n + γ)/μ, a line over log n.
        log_n = one.tail(np.exp(-np.euler_gamma) / np.array(many)) / one.speeds[0]
        axes.plot(many, log_n, "k:", label="c + (ln n + γ)/μ")
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
