"""Rows, table, summary and figure of stragglers.py."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from lab.claims import grouped
import numpy as np

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, Writer, collector
from dml.sim.delays import DelayDistribution, delay_distribution
from dml.sim.maxplus import seconds_per_step
from studies.stragglers.barriers import Barrier
from studies.stragglers.ranks import Starts, virtual_starts

COLUMNS: Columns = {
    "delay": (25, "{law}"),
    "workers": (7, "{workers:,}"),
    "barrier": (12, "{barrier}"),
    "grads": (6, "{grads:,}"),
    "formula": (8, "{formula:.3f}"),
    "max-plus": (8, "{maxplus:.3f}"),
    "virtual": (8, "{virtual:.3f}"),
    "virtual error": (13, "{virtual_error:.0e}"),
    "measured": (8, "{measured:.3f}"),
    "grads/s": (8, "{grads_per_second:,.2f}"),
}


def barrier_rows(
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
        draws_TxP: computing times of T steps and P workers.
        steps: number of steps that virtual ranks run, with the first draws.
        real: start times that real ranks measured with the same draws.
    """
    few_TxP = draws_TxP[:steps]
    starts = virtual_starts(table, few_TxP)
    for name, barrier in table.items():
        expected_TxP = barrier.oracle(few_TxP)
        error_TxP = np.abs(starts[name] - expected_TxP) / (expected_TxP.max() or 1)
        maxplus = seconds_per_step(barrier.oracle(draws_TxP), skip=len(draws_TxP) // 5)
        yield {
            "workers": few_TxP.shape[1],
            "barrier": name,
            "grads": barrier.gradients,
            "formula": barrier.closed(delay),
            "maxplus": maxplus,
            "virtual": seconds_per_step(starts[name]),
            "virtual_error": float(error_TxP.max()),
            "measured": seconds_per_step(real[name]) if real else None,
            "grads_per_second": barrier.gradients / maxplus if maxplus else None,
        }


MARKS = {  # style and label of a column's points
    "maxplus": ("o", "max-plus"),
    "virtual": ("x", "virtual ranks, few steps"),
    "measured": ("s", "real ranks, few steps"),
}
BarriersOf = Callable[[int], Mapping[str, Barrier]]  # number of workers -> barriers


def conclude(run: Run) -> str:
    """Return the seconds of a step of most workers, by delay and barrier."""
    texts = []
    for law, rows in grouped(run.rows, "law").items():
        most = max(row["workers"] for row in rows)
        steps = [
            f"{row['barrier']} {row['maxplus']:.3g} s"
            for row in rows
            if row["workers"] == most and row["maxplus"] is not None
        ]
        if steps:
            texts.append(f"{most:,} workers with delay {law}: {', '.join(steps)}")
    return (
        f"Seconds of a step of {'; '.join(texts)}." if texts else "No step was timed."
    )


def chart(path: Path, table: BarriersOf) -> AbstractContextManager[Writer]:
    """Collect rows; draw them when the summary is written."""
    return collector(lambda rows, _: draw(path, rows, table))


def draw(path: Path, rows: Sequence[Row], table: BarriersOf) -> None:
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


def panel(axes: Any, text: str, rows: Sequence[Row], table: BarriersOf) -> None:
    """Draw seconds per step by workers for one delay distribution, given as text."""
    delay = delay_distribution(text)
    sizes = [row["workers"] for row in rows]
    many = [round(n) for n in np.geomspace(min(sizes), max(sizes), 40)]
    for index, name in enumerate(table(1)):
        color = {"color": f"C{index}", "fillstyle": "none"}
        axes.plot([], [], label=name, linewidth=3, **color)
        formula = [table(n)[name].closed(delay) for n in many]
        if None not in formula:
            axes.plot(many, formula, linewidth=1.2, **color)
        rows_of_barrier = [row for row in rows if row["barrier"] == name]
        for column, (style, _) in MARKS.items():
            points = [row for row in rows_of_barrier if row[column] is not None]
            xs, ys = [r["workers"] for r in points], [r[column] for r in points]
            axes.plot(xs, ys, style, markersize=6, **color)
    if text.startswith("shifted_exponential"):
        # The largest of n draws is about the 1 - 1/(n e^γ) quantile: c + (ln n + γ)/μ.
        log_n = delay.tail(np.exp(-np.euler_gamma) / np.array(many)) / delay.speeds[0]
        axes.plot(many, log_n, "k:", label="c + (ln n + γ)/μ")
    axes.set(title=text, xlabel="workers", xscale="log", ylim=(0, None))


def totals(row: Row) -> Row:
    """Return the summary of a row, by delay distribution, barrier and workers."""
    name = f"{row['law'].split(':')[0]}_{row['barrier']}_{row['workers']}".replace(
        " ", "_"
    )
    summary = {name: row["maxplus"], f"{name}_virtual_error": row["virtual_error"]}
    if row["measured"]:
        summary[f"{name}_measured_to_virtual"] = row["measured"] / row["virtual"]
    return summary
