"""Draws in; rows, a table, a summary and a figure with a panel for each law out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from dml.figures import style as figures
from dml.runs.writers import Columns, Row, Writer, collected
from dml.sim.delays import Law, law
from dml.sim.maxplus import pace
from studies.stragglers.barriers import Barrier
from studies.stragglers.ranks import Starts, virtual

COLUMNS: Columns = {
    "law": (25, "{law}"),
    "workers": (7, "{workers:,}"),
    "way": (12, "{way}"),
    "grads": (6, "{grads:,}"),
    "formula": (8, "{formula:.3f}"),
    "max-plus": (8, "{maxplus:.3f}"),
    "virtual": (8, "{virtual:.3f}"),
    "off": (7, "{off:.0e}"),
    "measured": (8, "{measured:.3f}"),
    "grads/s": (8, "{grads_per_second:,.2f}"),
}


def compared(
    one: Law,
    table: Mapping[str, Barrier],
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
BarriersByWorkers = Callable[
    [int], Mapping[str, Barrier]
]  # of the ways, for so many workers


def chart(path: Path, table: BarriersByWorkers) -> AbstractContextManager[Writer]:
    """Collect rows; draw them when the summary comes."""
    return collected(lambda rows, _: draw(path, rows, table))


def draw(path: Path, rows: Sequence[Row], table: BarriersByWorkers) -> None:
    """Draw a panel for each delay distribution."""
    texts = list(dict.fromkeys(row["law"] for row in rows))
    count = max(1, len(texts))
    with figures.drawing(path, 1, count, size=(4.3 * count + 2, 4.2)) as drawing:
        figure, panels = drawing
        for axes, text in zip(panels, texts, strict=False):
            panel(axes, text, [row for row in rows if row["law"] == text], table)
        panels[0].set_ylabel("seconds a step")
        for style, label in (("-", "formula"), *MARKS.values()):
            look = {"color": "gray", "fillstyle": "none", "label": label}
            panels[0].plot([], [], style, **look)
        figures.legend(figure)


def panel(axes: Any, text: str, rows: Sequence[Row], table: BarriersByWorkers) -> None:
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


def totals(row: Row) -> Row:
    """What the summary says of a row: by law, way and workers."""
    name = f"{row['law'].split(':')[0]}_{row['way']}_{row['workers']}".replace(" ", "_")
    found = {name: row["maxplus"], f"{name}_off": row["off"]}
    if row["measured"]:
        found[f"{name}_measured_to_virtual"] = row["measured"] / row["virtual"]
    return found
