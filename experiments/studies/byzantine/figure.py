"""Figures of byzantine.py: the heat map, and worst cases by number of attackers."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dml.figures import style as figures
from studies.byzantine.report import Row, counts, key, rules, worst


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw both figures into a run folder."""
    draw_map(path / "heat_map", rows)
    draw_curves(path / "worst_case", rows)


def draw_map(path: Path, rows: Sequence[Row]) -> None:
    """Draw the accuracy with most attackers of each rule under each attack.

    A cell has the least accuracy over skews; it is empty if no run exists.
    """
    names, most = rules(rows), counts(rows)[-1]
    attacks = list(dict.fromkeys(row["attack"] for row in rows))
    accuracies_RxA = np.full((len(names), len(attacks)), np.nan)
    for row in rows:
        if row[key(most)] is not None:
            cell = names.index(row["rule"]), attacks.index(row["attack"])
            accuracies_RxA[cell] = np.fmin(accuracies_RxA[cell], row[key(most)])
    size = 2.6 + 0.8 * len(attacks), 1.2 + 0.36 * len(names)
    with figures.drawing(path, size=size, style=figures.PICTURE) as (figure, (axes,)):
        image = axes.imshow(
            accuracies_RxA, vmin=0, vmax=1, cmap="viridis", aspect="auto"
        )
        axes.set_xticks(range(len(attacks)), attacks, rotation=30, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.set_title(f"accuracy with {most} attackers")
        for place, accuracy in np.ndenumerate(accuracies_RxA):
            text = "" if np.isnan(accuracy) else f"{100 * accuracy:.0f}"
            colour = "black" if accuracy > 0.6 else "white"
            axes.text(*reversed(place), text, color=colour, ha="center", va="center")
        figure.colorbar(image, ax=axes)


def draw_curves(path: Path, rows: Sequence[Row]) -> None:
    """Draw the worst case of each rule by number of attackers."""
    series: dict[str, figures.Curve] = {}
    for rule in rules(rows):
        cases = {count: worst(rows, rule, count) for count in counts(rows)}
        known = {count: case.accuracy for count, case in cases.items() if case}
        series[rule] = list(known), list(known.values())
    plain = [rule for rule in series if "+" not in rule]
    labels = {"x": "attackers", "y": "worst accuracy over attacks"}
    figures.curves(path, series, **labels, dashed=plain, within=(0, 1))
