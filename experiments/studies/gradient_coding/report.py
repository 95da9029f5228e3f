"""Table, summary and figures of gradient_coding.py."""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from lab.claims import grouped, matching

from dml.figures import style as figures
from dml.figures.style import Panel
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, Writer, collector
from dml.sim.delays import DelayDistribution, delay_distribution
from dml.types import BadInput
from studies.gradient_coding.schemes import (
    CODES,
    FIXED,
    LOAD,
    TAILS,
    make_scheme,
    predicted,
)

COLUMNS: Columns = {
    "tail": (5, "{tail}"),
    "workers": (7, "{workers}"),
    "s": (2, "{stragglers}"),
    "scheme": (10, "{scheme}"),
    "load": (5, "{load:.2f}"),
    "measured": (8, "{measured:.3f}"),
    "AUC": (7, "{auc:.4f}"),
    "s to AUC": (8, "{seconds_to_auc:.1f}"),
    "predicted": (9, "{predicted:.3f}"),
    "virtual error": (13, "{virtual_error:.0e}"),
}
COLOURS = {name: f"C{number}" for number, name in enumerate(CODES)}
MARK: dict[str, Any] = {"fillstyle": "none", "markersize": 8}
MOST = 10  # stragglers in the figure of seconds
TITLES = {FIXED: "tail is fixed", LOAD: "tail grows with load"}
HEIGHT = 1.6  # of a figure relative to the largest measured time
LOWEST = 0.02  # AUC below the best one at which a figure begins


def with_times(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows with the seconds to the AUC of the scheme with the least AUC."""
    target = min(row["auc"] for row in rows)
    for row in rows:
        yield row | {
            "target": target,
            "seconds_to_auc": seconds_to(row, target),
        }


def seconds_to(row: Row, target: float) -> float | None:
    """Return the first time at which the AUC is at least the target."""
    for seconds, auc in zip(row["curve_seconds"], row["curve_auc"], strict=True):
        if auc >= target:
            return seconds
    return None


def summarize(rows: Sequence[Row]) -> Row:
    """Return the flat summary: seconds per update, AUC and seconds to the AUC."""
    summary: dict[str, Any] = {}
    for row in rows:
        name = f"{row['tail']}_{row['workers']}_{row['scheme']}"
        for key in ("measured", "auc", "seconds_to_auc"):
            summary[f"{name}_{key}"] = row[key]
    return summary


def conclude(run: Run) -> str:
    """Return the scheme that reaches the AUC first, by tail, on most workers."""
    texts = []
    for tail, rows in grouped(run.rows, "tail").items():
        most = max(row["workers"] for row in rows)
        rows = [row for row in rows if row["workers"] == most]
        first, *others = sorted(rows, key=lambda row: row["seconds_to_auc"] or math.inf)
        if first["seconds_to_auc"] is None:
            continue
        rest = ", ".join(
            f"{row['scheme']} {row['seconds_to_auc']:.3g}"
            for row in others
            if row["seconds_to_auc"] is not None
        )
        texts.append(
            f"with tail {tail} {first['scheme']} reaches the AUC first on {most} "
            f"workers, after {first['seconds_to_auc']:.3g} virtual s ({rest})"
        )
    text = "; ".join(texts) or "no scheme reaches the AUC"
    return f"{text[0].upper()}{text[1:]}."


def chart(path: Path, law: str) -> AbstractContextManager[Writer]:
    """Collect rows; draw them when the summary is written.

    Args:
      path: Folder of the figures.
      law: Delay distribution as text.
    """
    return collector(lambda rows, _: draw(path, rows, law))


def draw(path: Path, rows: Sequence[Row], law: str) -> None:
    """Draw the AUC by virtual seconds of each tail, and the seconds by stragglers."""
    for tail in TAILS:
        if chosen := matching(rows, tail=tail):
            best = max(row["auc"] for row in chosen)
            panels = [
                curves(n, group) for n, group in grouped(chosen, "workers").items()
            ]
            limits = best - LOWEST, best + 0.1 * LOWEST
            figures.panels(path / f"auc_{tail}", panels, within=limits)
    draw_seconds(path / "seconds", rows, law)


def curves(workers: int, rows: Sequence[Row]) -> Panel:
    series = {row["scheme"]: (row["curve_seconds"], row["curve_auc"]) for row in rows}
    return Panel(f"{workers} workers", series, "virtual seconds", "held-out AUC")


def draw_seconds(path: Path, rows: Sequence[Row], law: str) -> None:
    """Draw predicted and measured seconds per update by the number of stragglers.

    The number of workers is the largest one of the rows.
    """
    delay = delay_distribution(law)
    workers = max(row["workers"] for row in rows)
    tails = list(grouped(rows, "tail"))
    size = (4.3 * len(tails) + 1.6, 3.8)
    counts = range(min(workers, MOST + 1))
    with figures.drawing(path, 1, len(tails), size=size) as (figure, panels):
        for axes, tail in zip(panels, tails, strict=True):
            for name, colour in COLOURS.items():
                means = [prediction(name, workers, s, delay, tail) for s in counts]
                places = [s for s in counts if means[s] is not None]
                means = [mean for mean in means if mean is not None]
                axes.plot(places, means, ".-", label=name, color=colour)
            chosen = matching(rows, tail=tail, workers=workers)
            for row in chosen:
                place, name = (row["stragglers"], row["measured"]), row["scheme"]
                axes.plot(*place, "o", color=COLOURS[name], **MARK)
            axes.set(title=f"{workers} workers, {TITLES[tail]}", xlabel="stragglers s")
            top = HEIGHT * max(row["measured"] for row in chosen)
            axes.set(ylim=(0, top), ylabel="seconds per update")
        panels[0].plot([], [], "o", color="gray", label="measured", **MARK)
        figures.legend(figure)


def prediction(
    name: str, workers: int, stragglers: int, delay: DelayDistribution, tail: str
) -> float | None:
    """Return the mean seconds of a scheme; None if its code does not exist.

    Args:
      name: Name of the scheme.
      workers: Number of workers.
      stragglers: Number of stragglers.
      delay: Distribution of the delays.
      tail: Key of TAILS.
    """
    try:
        return predicted(make_scheme(name, workers, stragglers), delay, tail)
    except BadInput:
        return None
