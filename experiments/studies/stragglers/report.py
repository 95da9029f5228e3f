"""Rows, table, summary and figure of stragglers.py."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from dml.figures import style as figures
from dml.runs.writers import Columns, Row, Writer, collected
from dml.sim.delays import DelayDistribution, delay_distribution
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
    delay: DelayDistribution,
    table: Mapping[str, Barrier],
    draws_TxP: np.ndarray,
    steps: int,
    real: Starts | None = None,
) -> Iterator[Row]:
    """Yield the seconds per step of each barrier.

    Args:
        delay: delay distribution of the draws.
        table: barriers by name.
        draws_TxP: computing times of all steps and workers.
        steps: number of first draws that virtual ranks run.
        real: start times that real ranks measured with the same draws.
    """
    few_TxP = draws_TxP[:steps]
    virtual_starts = virtual(table, few_TxP)
    for name, barrier in table.items():
        expected_TxP = barrier.oracle(few_TxP)
        off_TxP = np.abs(virtual_starts[name] - expected_TxP) / (
            expected_TxP.max() or 1
        )
        maxplus = pace(barrier.oracle(draws_TxP), skip=len(draws_TxP) // 5)
        yield {
            "workers": few_TxP.shape[1],
            "way": name,
            "grads": barrier.gradients,
            "formula": barrier.closed(delay),
            "maxplus": maxplus,
            "virtual": pace(virtual_starts[name]),
            "off": float(off_TxP.max()),
            "measured": pace(real[name]) if real else None,
            "grads_per_second": barrier.gradients / maxplus if maxplus else None,
        }


MARKS = {  # style and label of a column's points
    "maxplus": ("o", "max-plus"),
    "virtual": ("x", "virtual ranks, few steps"),
    "measured": ("s", "real ranks, few steps"),
}
BarriersByWorkers = Callable[
    [int], Mapping[str, Barrier]
]  # barriers, by number of workers


def chart(path: Path, table: BarriersByWorkers) -> AbstractContextManager[Writer]:
    """Collect rows; draw them when the summary is written."""
    return collected(lambda rows, _: draw(path, rows, table))


def draw(path: Path, rows: Sequence[Row], table: BarriersByWorkers) -> None:
    """Draw a panel for each delay distribution."""
    texts = list(dict.fromkeys(row["law"] for row in rows))
    count = max(1, len(texts))
    with figures.drawing(path, 1, count, size=(4.3 * count + 2, 4.2)) as drawing:
        figure, panels = drawing
        for axes, text in zip(panels, texts, strict=False):
            panel(axes, text, [row for row in rows if row["law"] == text], table)
        panels[0].set_ylabel("seconds per step")
        for style, label in (("-", "formula"), *MARKS.values()):
            look = {"color": "gray", "fillstyle": "none", "label": label}
            panels[0].plot([], [], style, **look)
        figures.legend(figure)


def panel(axes: Any, text: str, rows: Sequence[Row], table: BarriersByWorkers) -> None:
    delay, sizes = delay_distribution(text), [row["workers"] for row in rows]
    many = [round(n) for n in np.geomspace(min(sizes), max(sizes), 40)]
    for number, name in enumerate(table(1)):
        colour = {"color": f"C{number}", "fillstyle": "none"}
        axes.plot([], [], label=name, linewidth=3, **colour)
        formula = [table(n)[name].closed(delay) for n in many]
        if None not in formula:
            axes.plot(many, formula, linewidth=1.2, **colour)
        barrier_rows = [row for row in rows if row["way"] == name]
        for column, (style, _) in MARKS.items():
            known = [row for row in barrier_rows if row[column] is not None]
            xs, ys = [r["workers"] for r in known], [r[column] for r in known]
            axes.plot(xs, ys, style, markersize=6, **colour)
    if text.startswith("shifted_exponential"):
        # The largest of n draws is about the 1 - 1/(n e^γ) quantile: c + (ln n + γ)/μ.
        log_n = delay.tail(np.exp(-np.euler_gamma) / np.array(many)) / delay.speeds[0]
        axes.plot(many, log_n, "k:", label="c + (ln n + γ)/μ")
    axes.set(title=text, xlabel="workers", xscale="log", ylim=(0, None))


def totals(row: Row) -> Row:
    """Return the summary of a row, by delay distribution, barrier and workers."""
    name = f"{row['law'].split(':')[0]}_{row['way']}_{row['workers']}".replace(" ", "_")
    summary = {name: row["maxplus"], f"{name}_off": row["off"]}
    if row["measured"]:
        summary[f"{name}_measured_to_virtual"] = row["measured"] / row["virtual"]
    return summary
