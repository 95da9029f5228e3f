"""Recomputed rows of the published tables, and counts of equal cells."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from dml.runs.carbon import POUND, PRICES, footprint, rent
from dml.runs.writers import Row
from studies.carbon.tables import PATTERSON, POUNDS, PUE, STRUBELL, Training

CELLS = ("kwh", "pounds", "dollars_low", "dollars_high")


def strubell() -> Iterator[Row]:
    """Yield each training with its printed hours, and with exact hours where known."""
    for training in STRUBELL:
        yield recompute(training, training.hours, "printed")
        if training.exact is not None:
            yield recompute(training, training.exact, "exact")


def recompute(training: Training, hours: float, source: str) -> Row:
    """Return the printed cells of a training, and the cells computed from hours."""
    price = PRICES[training.device]
    low, high = (rent(training.devices, hours, rate) for rate in price[:2])
    computed: dict[str, float | None] = {"kwh": None, "pounds": None}
    if training.watts is not None:
        energy = footprint(training.watts, hours, PUE, POUNDS)
        computed = {"kwh": energy.kwh, "pounds": energy.co2}
    computed |= {"dollars_low": low, "dollars_high": high}
    published = dict(
        zip(CELLS, (training.kwh, training.pounds, *training.dollars), strict=True)
    )
    unequal = [
        name.replace("_", " ")
        for name, value in computed.items()
        # rounds half to even, which one printed cell requires
        if value is not None and round(value) != published[name]
    ]
    return {
        "model": training.model,
        "hardware": f"{training.devices} {training.device}",
        "watts": training.watts,
        "hours": hours,
        "hours_are": source,
        **{f"published_{name}": value for name, value in published.items()},
        **computed,
        "unequal": ", ".join(unequal),
    }


def agreement(rows: Iterable[Row]) -> tuple[int, int, float]:
    """Return the numbers of cells and of equal cells, and the largest deviation."""
    cells = [
        (row[name], row[f"published_{name}"])
        for row in rows
        for name in CELLS
        if row[name] is not None
    ]
    deviations_ = [
        abs(round(computed) / published - 1) for computed, published in cells
    ]
    return len(deviations_), deviations_.count(0.0), max(deviations_)


def patterson() -> Iterator[Row]:
    """Yield each training, recomputed for its data centre and for Strubell's."""
    for training in PATTERSON:
        watts, hours = training.devices * training.watts, 24 * training.days
        actual = footprint(watts, hours, training.pue, training.intensity)
        average = footprint(watts, hours, PUE, POUND * POUNDS)
        yield {
            **training._asdict(),
            "hardware": f"{training.devices} {training.device}",
            "mwh_ours": actual.kwh / 1e3,
            "tonnes_ours": actual.co2 / 1e3,
            "implied_days": training.days * training.mwh * 1e3 / actual.kwh,
            "average_tonnes": average.co2 / 1e3,
            "average_ratio": average.co2 / actual.co2,
        }


def days_agree(row: Row) -> bool:
    """Return whether the printed MWh imply the printed days, after rounding."""
    digits = 0 if float(row["days"]).is_integer() else 1
    return round(row["implied_days"], digits) == row["days"]


def deviations(rows: Sequence[Row]) -> list[float]:
    """Return the relative deviation of each recomputed cell."""
    pairs = [(row["mwh_ours"], row["mwh"]) for row in rows]
    pairs += [(row["tonnes_ours"], row["tonnes"]) for row in rows]
    return [abs(computed / published - 1) for computed, published in pairs]


TABLES: dict[str, Callable[..., Iterable[Row]]] = {
    "strubell": lambda arguments, written: strubell(),
    "patterson": lambda arguments, written: patterson(),
}


def totals(
    strubell_rows: Sequence[Row], patterson_rows: Sequence[Row]
) -> dict[str, Any]:
    """Return the summary of both tables; exact hours replace printed ones."""
    printed = [row for row in strubell_rows if row["hours_are"] == "printed"]
    exact = {(row["model"], row["hardware"]): row for row in strubell_rows}.values()
    cells, equal, worst = agreement(exact)
    _, as_printed, worst_printed = agreement(printed)
    searched = next(row for row in printed if row["kwh"] and row["model"] == "NAS")
    return {
        "strubell_cells": cells,
        "strubell_exact": equal,
        "strubell_worst_error": worst,
        "strubell_exact_printed": as_printed,
        "strubell_worst_error_printed": worst_printed,
        "patterson_cells": 2 * len(patterson_rows),
        "patterson_worst_error": max(deviations(patterson_rows)),
        "patterson_follows": sum(map(days_agree, patterson_rows)),
        "search_tonnes": searched["pounds"] * POUND / 1e3,
    }
