"""Rows of the published tables, recomputed, and counts of equal cells."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from dml.runs.carbon import POUND, PRICES, footprint, rent
from dml.runs.writers import Row
from studies.carbon.tables import PATTERSON, POUNDS, PUE, STRUBELL, Training

CELLS = ("kwh", "pounds", "dollars_low", "dollars_high")


def strubell() -> Iterator[Row]:
    """Yield each training as printed; again by its exact hours, where it has some."""
    for one in STRUBELL:
        yield recomputed(one, one.hours, "printed")
        if one.exact is not None:
            yield recomputed(one, one.exact, "exact")


def recomputed(one: Training, hours: float, source: str) -> Row:
    """Return the printed cells of a training, and those that follow from its hours."""
    price = PRICES[one.device]
    low, high = (rent(one.devices, hours, each) for each in price[:2])
    ours: dict[str, float | None] = {"kwh": None, "pounds": None}
    if one.watts is not None:
        found = footprint(one.watts, hours, PUE, POUNDS)
        ours = {"kwh": found.kwh, "pounds": found.co2}
    ours |= {"dollars_low": low, "dollars_high": high}
    published = dict(zip(CELLS, (one.kwh, one.pounds, *one.dollars), strict=True))
    unequal = [
        name.replace("_", " ")
        for name, value in ours.items()
        # as printed: a half, which one cell has, went to the even number
        if value is not None and round(value) != published[name]
    ]
    return {
        "model": one.model,
        "hardware": f"{one.devices} {one.device}",
        "watts": one.watts,
        "hours": hours,
        "hours_are": source,
        **{f"published_{name}": value for name, value in published.items()},
        **ours,
        "unequal": ", ".join(unequal),
    }


def agreement(rows: Iterable[Row]) -> tuple[int, int, float]:
    """Return how many cells there are and are equal, and the worst one's deviation."""
    cells = [
        (row[name], row[f"published_{name}"])
        for row in rows
        for name in CELLS
        if row[name] is not None
    ]
    off = [abs(round(ours) / published - 1) for ours, published in cells]
    return len(off), off.count(0.0), max(off)


def patterson() -> Iterator[Row]:
    """Yield each training recomputed, and as it were in Strubell's data centre."""
    for one in PATTERSON:
        watts, hours = one.devices * one.watts, 24 * one.days
        found = footprint(watts, hours, one.pue, one.intensity)
        average = footprint(watts, hours, PUE, POUND * POUNDS)
        yield {
            **one._asdict(),
            "hardware": f"{one.devices} {one.device}",
            "mwh_ours": found.kwh / 1e3,
            "tonnes_ours": found.co2 / 1e3,
            "implied_days": one.days * one.mwh * 1e3 / found.kwh,
            "average_tonnes": average.co2 / 1e3,
            "average_ratio": average.co2 / found.co2,
        }


def days_agree(row: Row) -> bool:
    """Return whether the printed MWh imply the printed days, after rounding."""
    digits = 0 if float(row["days"]).is_integer() else 1
    return round(row["implied_days"], digits) == row["days"]


def deviations(rows: Sequence[Row]) -> list[float]:
    """Return how far each recomputed cell is from the printed one."""
    pairs = [(row["mwh_ours"], row["mwh"]) for row in rows]
    pairs += [(row["tonnes_ours"], row["tonnes"]) for row in rows]
    return [abs(ours / published - 1) for ours, published in pairs]


TABLES: dict[str, Callable[..., Iterable[Row]]] = {
    "strubell": lambda plan, kept: strubell(),
    "patterson": lambda plan, kept: patterson(),
}


def totals(first: Sequence[Row], second: Sequence[Row]) -> dict[str, Any]:
    """Return the summary of both tables: of cells, those by exact hours count."""
    printed = [row for row in first if row["hours_are"] == "printed"]
    exact = {(row["model"], row["hardware"]): row for row in first}.values()
    cells, right, worst = agreement(exact)
    _, as_printed, worst_printed = agreement(printed)
    searched = next(row for row in printed if row["kwh"] and row["model"] == "NAS")
    return {
        "strubell_cells": cells,
        "strubell_exact": right,
        "strubell_worst_error": worst,
        "strubell_exact_printed": as_printed,
        "strubell_worst_error_printed": worst_printed,
        "patterson_cells": 2 * len(second),
        "patterson_worst_error": max(deviations(second)),
        "patterson_follows": sum(map(days_agree, second)),
        "search_tonnes": searched["pounds"] * POUND / 1e3,
    }
