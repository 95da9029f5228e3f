"""Tables, figure and printed summary of carbon.py."""

import math
from collections.abc import Sequence
from pathlib import Path

from dml.figures import style as figures
from dml.runs.carbon import POUND
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, scaled_cell
from studies.carbon.rows import days_agree
from studies.carbon.tables import POUNDS, PUE, SEARCH


def unequal_cells_text(row: Row) -> str:
    """Return whether the cells equal the published ones, or how many differ."""
    count = len(row["unequal"].split(", ")) if row["unequal"] else 0
    return f"{count} differ" if count else "equal"


TITLES = {
    "strubell": f"Strubell 2019: kWh = {PUE} x W x h / 1000, {POUNDS} lbs CO2e each, "
    "dollars of Google Cloud in 2019",
    "patterson": "Patterson 2021: kWh = h x devices x W x PUE / 1000, tonnes of CO2e "
    "by the local grid",
    "glove": "Energy of GloVe to loss {target:.5f}, by strategy",
}
COLUMNS: dict[str, Columns] = {
    "strubell": {
        "model": (9, "{model}"),
        " on": (8, "{hardware}"),
        " hours": (7, "{hours:,g}"),
        " kWh": (7, "{published_kwh:,d}"),
        " ours": (7, "{kwh:,.0f}"),
        " lbs CO2e": (8, "{published_pounds:,d}"),
        "  ours": (7, "{pounds:,.0f}"),
        " ": (8, unequal_cells_text),
        " dollars": (17, "{published_dollars_low:,.0f}-{published_dollars_high:,.0f}"),
        "   ours": (17, "{dollars_low:,.0f}-{dollars_high:,.0f}"),
    },
    "patterson": {
        "model": (11, "{model}"),
        " on": (11, "{hardware}"),
        " days": (4, "{days:g}"),
        " MWh": (6, "{mwh:g}"),
        " ours": (7, "{mwh_ours:,.1f}"),
        " t CO2e": (6, "{tonnes:g}"),
        "  ours": (6, "{tonnes_ours:.1f}"),
        " by days": (7, "{implied_days:.2f}"),
        " W": (3, "{watts:d}"),
        " PUE": (4, "{pue:.2f}"),
        " kg/kWh": (6, "{intensity:.3f}"),
        f" t at {PUE}, {POUND * POUNDS:.3f}": (15, "{average_tonnes:,.1f}"),
        " times": (5, "{average_ratio:.2f}"),
    },
    "glove": {
        "strategy": (11, "{strategy}"),
        " ranks": (5, "{ranks:d}"),
        " epochs": (6, "{epochs:d}"),
        " seconds": (7, "{seconds:.2f}"),
        " Wh": (8, scaled_cell("kwh", 1e3, ".4f")),
        " g CO2e": (8, scaled_cell("co2_kg", 1e3, ".4f")),
        " cents": (8, scaled_cell("cost_usd", 100, ".5f")),
        " source": (0, lambda row: row["source"] or "not reached"),
    },
}


def published(summary: Row, patterson_rows: Sequence[Row]) -> str:
    """Return the printed summary of the recomputed tables."""
    agreeing = [row["model"] for row in patterson_rows if days_agree(row)]
    return (
        f"\nStrubell: {summary['strubell_exact']} of {summary['strubell_cells']} cells "
        f"equal the published ones, {summary['strubell_exact_printed']} of them with "
        "the published hours.\n  Other hours: BERT 79.2 instead of 79 (3.3 days); NAS "
        "on TPU 32,633 instead of 32,623 (979 M steps,\n  10 h for 300,000).\n"
        f"Patterson: all cells are within {summary['patterson_worst_error']:.1%}, with "
        "the published days. The days computed from the MWh\n  (by days) round to the "
        f"published days for {len(agreeing)} of {len(patterson_rows)} models. Last two "
        "columns: the same runs with Strubell's data\n  centre and grid. The NAS has "
        f"{summary['search_tonnes']:.0f} t by Strubell and {SEARCH} t by Patterson, "
        "with another PUE and grid, TPUs,\n  and a search with a smaller model."
    )


def best(rows: Sequence[Row]) -> Row | None:
    """Return the row of least energy that reached the target."""
    reached = [row for row in rows if row["kwh"] is not None]
    return min(reached, key=lambda row: row["kwh"], default=None)


def conclude(run: Run) -> str:
    """Return the recomputed cells, and the strategy of least energy."""
    summary = run.summary
    text = (
        f"{summary['strubell_exact']} of {summary['strubell_cells']} cells of "
        "Strubell's table are recomputed"
    )
    rows = [row for row in run.rows if row["table"] == "glove"]
    texts = [
        f"{row['strategy']} on {row['ranks']} ranks {1e3 * row['kwh']:.3g} Wh"
        for row in sorted(rows, key=lambda row: row["kwh"] or math.inf)
        if row["kwh"] is not None
    ]
    if texts:
        text += f"; least energy to loss {rows[0]['target']:.5f}: {', '.join(texts)}"
    return f"{text}."


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw the energy of each strategy as a bar, with its emissions."""
    rows = [row for row in rows if row["kwh"] is not None]
    if not rows:
        return
    names = [f"{row['strategy']}, {row['ranks']}" for row in rows]
    energy = [1e3 * row["kwh"] for row in rows]
    notes = [
        f" {row['epochs']} epochs, {row['seconds']:.1f} s, {1e3 * row['co2_kg']:.3f} g"
        for row in rows
    ]
    size = (6.4, 1.2 + 0.36 * len(rows))
    with figures.drawing(path, size=size, style=figures.PICTURE) as (_, (axes,)):
        axes.bar_label(axes.barh(names, energy, height=0.62), notes, fontsize=8)
        axes.set_xlim(right=1.5 * max(energy))
        axes.invert_yaxis()
        axes.set(xlabel=f"Wh to loss {rows[0]['target']:.5f}; {rows[0]['source']}")
