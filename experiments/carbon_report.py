"""What `carbon.py` prints: columns of its tables, the bars of its figure, its words."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from carbon_rows import follows
from carbon_tables import POUNDS, PUE, SEARCH

from dml.metrics.carbon import POUND
from dml.metrics.figures import save
from dml.metrics.writers import Row

Column = tuple[int, Callable[[Row], str]]


def number(key: str, form: str, width: int, scale: float = 1) -> Column:
    def text(row: Row) -> str:
        return "—" if row[key] is None else format(row[key] * scale, form)

    return width, text


def word(key: str, width: int) -> Column:
    return width, lambda row: row[key]


def dollars(prefix: str) -> Column:
    low, high = f"{prefix}dollars_low", f"{prefix}dollars_high"
    return 17, lambda row: f"{row[low]:,.0f}-{row[high]:,.0f}"


def verdict(row: Row) -> str:
    return f"not {row['unequal']}" if row["unequal"] else "equal"


TITLES = {
    "strubell": f"Strubell 2019: kWh = {PUE} x W x h / 1000, {POUNDS} lbs CO2e each, "
    "dollars of Google Cloud in 2019",
    "patterson": "Patterson 2021: kWh = h x devices x W x PUE / 1000, tonnes of CO2e "
    "by the grid there",
    "glove": "Energy of GloVe to loss {target:.5f}, by way of training",
}
COLUMNS: dict[str, dict[str, Column]] = {
    "strubell": {
        "model": word("model", 9),
        " on": (8, lambda row: row["hardware"]),
        " hours": number("hours", ",g", 7),
        " kWh": number("published_kwh", ",d", 7),
        " ours": number("kwh", ",.0f", 7),
        " lbs CO2e": number("published_pounds", ",d", 8),
        "  ours": number("pounds", ",.0f", 7),
        " dollars": dollars("published_"),
        "   ours": dollars(""),
        " ": (0, verdict),
    },
    "patterson": {
        "model": word("model", 11),
        " on": (11, lambda row: row["hardware"]),
        " days": number("days", "g", 4),
        " W": number("watts", "d", 3),
        " PUE": number("pue", ".2f", 4),
        " kg/kWh": number("intensity", ".3f", 6),
        " MWh": number("mwh", "g", 6),
        " ours": number("mwh_ours", ",.1f", 7),
        " t CO2e": number("tonnes", "g", 6),
        "  ours": number("tonnes_ours", ".1f", 6),
        " by days": number("implied_days", ".2f", 7),
        f" t at {PUE}, {POUND * POUNDS:.3f}": number("average_tonnes", ",.1f", 15),
        " times": number("average_ratio", ".2f", 5),
    },
    "glove": {
        "strategy": word("strategy", 11),
        " ranks": number("ranks", "d", 5),
        " epochs": number("epochs", "d", 6),
        " seconds": number("seconds", ".2f", 7),
        " Wh": number("kwh", ".4f", 8, 1e3),
        " g CO2e": number("co2_kg", ".4f", 8, 1e3),
        " cents": number("cost_usd", ".5f", 8, 100),
        " by": (0, lambda row: row["source"] or "not reached"),
    },
}


def published(summary: Row, second: Sequence[Row]) -> str:
    """Say how far the tables are recomputed."""
    held = [row["model"] for row in second if follows(row)]
    return (
        f"\nStrubell: {summary['strubell_exact']} of {summary['strubell_cells']} cells "
        f"as printed, {summary['strubell_exact_printed']} of them from printed hours: "
        "BERT's 79 are 79.2 (3.3 days),\n  NAS on TPU took 32,633 (979 M steps of 10 h "
        f"for 300,000), not 32,623.\nPatterson: all within "
        f"{summary['patterson_worst_error']:.1%}, from days as printed; the MWh imply "
        f"(by days) what rounds to the days of {len(held)} of {len(second)}.\n"
        f"  The same runs in Strubell's data centre and on its grid: last two columns. "
        f"The search that he puts\n  at {summary['search_tonnes']:.0f} t was reported "
        f"as {SEARCH} t by who ran it: PUE, grid, TPUs, and a smaller model searched."
    )


def best(rows: Sequence[Row]) -> Row | None:
    """Return the row of least energy, of those that reached the target."""
    there = [row for row in rows if row["kwh"] is not None]
    return min(there, key=lambda row: row["kwh"], default=None)


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw a bar a way: energy, and what it emits at its end."""
    from matplotlib.figure import Figure

    rows = [row for row in rows if row["kwh"] is not None]
    if not rows:
        return
    figure = Figure(figsize=(6.4, 1.2 + 0.36 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    names = [f"{row['strategy']}, {row['ranks']}" for row in rows]
    energy = [1e3 * row["kwh"] for row in rows]
    bars: Any = axes.barh(names, energy, height=0.62)
    notes = [
        f" {row['epochs']} epochs, {row['seconds']:.1f} s, {1e3 * row['co2_kg']:.3f} g"
        for row in rows
    ]
    axes.bar_label(bars, notes, fontsize=8)
    axes.set_xlim(right=1.5 * max(energy))
    axes.invert_yaxis()
    axes.set(xlabel=f"Wh to loss {rows[0]['target']:.5f}; {rows[0]['source']}")
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)
