"""Rows, tables, figure and conclusion of crossover.py."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lab import flags
import numpy as np

from dml.figures import style as figures
from dml.runs.results import Run
from dml.runs.writers import Columns, scaled_cell
from studies.compression import speeds
from studies.compression.predicted import Network, pays_below, saved_seconds
from studies.compression.speeds import Speed

Row = dict[str, Any]
RANGE = 0.1, 400.0  # Gb/s of the search
DATA_CENTRE = 10  # least Gb/s of a network of a data centre
OPERATIONS = 6  # of a parameter and an example: forward 2, backward 4
ALONE = 0  # examples of a row without a gradient

MEASURED: Columns = {
    "code": (33, "{code}"),
    "bytes": (9, "{nbytes}"),
    "ratio": (6, "{ratio:.1f}"),
    "both GB/s": (9, "{both_gbs:.2f}"),
    "us": (7, scaled_cell("seconds", 1e6, ".0f")),
    "encode GB/s": (11, "{encode_gbs:.2f}"),
    "decode GB/s": (11, "{decode_gbs:.2f}"),
}
TITLES = {
    "code": "Seconds of codes on one core; GB of float32 per second",
    "crossover": "Largest bandwidth in Gb/s at which a code saves time; -: none",
}


class CrossoverPlan(NamedTuple):
    """The networks and updates of a run.

    Attributes:
      ranks: Numbers of ranks.
      gbps: Bandwidths of the setups.
      examples: Numbers of examples of a rank in an update.
      alpha: Seconds of a message.
    """

    ranks: list[int]
    gbps: list[float]
    examples: list[int]
    alpha: float


class Core(NamedTuple):
    """Seconds of one core to add a byte, and for an operation of a product."""

    gamma: float
    flop: float


def plan(values: flags.FlagValues) -> CrossoverPlan:
    """Return the plan of the flags; raise BadInput if they do not fit."""
    ranks = flags.integers(values, "ranks")
    examples = flags.integers(values, "examples")
    gbps = flags.positive_numbers(values, "gbps")
    return CrossoverPlan(ranks, gbps, examples, 1e-6 * values.latency_us)


def columns(ranks: Sequence[int]) -> dict[str, Columns]:
    """Return the columns of both tables; one per number of ranks."""
    places = {
        f"p={size}": (7, lambda row, n=n: cell(row["pays_below"][n]))
        for n, size in enumerate(ranks)
    }
    crossover: Columns = {
        "code": (33, "{code}"),
        "examples": (8, lambda row: str(row["examples"] or "alone")),
        **places,
    }
    return {"code": MEASURED, "crossover": crossover}


def cell(gbps: float | None) -> str:
    """Return a bandwidth as text."""
    if gbps is None:
        return "-"
    return f">{RANGE[1]:g}" if gbps >= RANGE[1] else f"{gbps:.3g}"


def measure_core(length: int, repeats: int) -> Core:
    """Return the measured seconds of a core."""
    return Core(speeds.adding_seconds(length, repeats), speeds.flop_seconds(repeats))


def rows(measured: Sequence[Speed], plan: CrossoverPlan, core: Core) -> Iterator[Row]:
    """Yield a row for each code, and for each code and number of examples."""
    for speed in measured:
        yield measured_row(speed)
    for examples in (ALONE, *plan.examples):
        for speed in measured:
            yield crossover_row(speed, plan, core, examples)


def measured_row(speed: Speed) -> Row:
    """Return the bytes and speeds of a code."""
    nbytes, both = 4 * speed.length, speed.encode + speed.decode
    return {
        "table": "code",
        "code": speed.name,
        "nbytes": speed.nbytes(),
        "ratio": nbytes / speed.nbytes(),
        "seconds": both,
        "encode_gbs": 1e-9 * nbytes / speed.encode if speed.decode else None,
        "decode_gbs": 1e-9 * nbytes / speed.decode if speed.decode else None,
        "both_gbs": 1e-9 * nbytes / both,
    }


def crossover_row(speed: Speed, plan: CrossoverPlan, core: Core, examples: int) -> Row:
    """Return the bandwidths below which a code pays, and the setups where it does.

    Args:
      speed: The code.
      plan: The networks.
      core: Speeds of a core.
      examples: Number of examples of a gradient; ALONE: the sum alone.
    """
    gradient = OPERATIONS * speed.length * examples * core.flop
    networks = [Network(size, plan.alpha, core.gamma, gradient) for size in plan.ranks]
    return {
        "table": "crossover",
        "code": speed.name,
        "examples": examples,
        "gradient_seconds": gradient,
        "ranks": plan.ranks,
        "pays_below": [pays_below(speed, network, RANGE) for network in networks],
        "gbps": plan.gbps,
        "paying": [
            sum(saved_seconds(speed, network, gbps) > 0 for network in networks)
            for gbps in plan.gbps
        ],
    }


def shares(rows: Sequence[Row], least: float = 0) -> dict[int, tuple[int, int]]:
    """Return how many setups a code pays in, and their number, by examples.

    Args:
      rows: Rows of a run.
      least: Smallest bandwidth of a setup.
    """
    counts: dict[int, tuple[int, int]] = {}
    for row in rows:
        if row["table"] == "crossover" and row["examples"]:
            paying, setups = counts.get(row["examples"], (0, 0))
            for gbps, count in zip(row["gbps"], row["paying"], strict=True):
                if gbps >= least:
                    paying += count
                    setups += len(row["ranks"])
            counts[row["examples"]] = paying, setups
    return counts


def summarize(rows: Sequence[Row], core: Core) -> Row:
    """Return the flat summary."""
    alone = [row for row in rows if row["table"] == "crossover" and not row["examples"]]
    counts = shares(rows).values()
    limits = [gbps or 0.0 for row in alone for gbps in row["pays_below"]]
    return {
        "adding_gbs": 1e-9 / core.gamma,
        "gflops": 1e-9 / core.flop,
        "paying": sum(paying for paying, _ in counts),
        "setups": sum(setups for _, setups in counts),
        "most_gbps": max(limits),
    }


def conclude(run: Run) -> str:
    """Return the share of setups in which a code makes updates faster."""
    summary = run.summary
    paying, setups = summary["paying"], summary["setups"]
    fast = shares(run.rows, DATA_CENTRE).values()
    paying_fast, fast_setups = map(sum, zip(*fast, strict=True))
    return (
        f"A code makes updates faster in {paying} of {setups} setups "
        f"({paying / setups:.0%}), and in {paying_fast} of those {fast_setups} with at "
        f"least {DATA_CENTRE} Gb/s. Without a gradient, no code saves time above "
        f"{summary['most_gbps']:.3g} Gb/s."
    )


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw the bandwidths by number of ranks, for sums and for updates.

    Of several numbers of examples the middle one is drawn.
    """
    panels = []
    crossovers = [row for row in rows if row["table"] == "crossover"]
    alone, *updates = dict.fromkeys(row["examples"] for row in crossovers)
    for examples in (alone, updates[len(updates) // 2]):
        series = {
            row["code"]: (
                row["ranks"],
                [np.nan if gbps is None else gbps for gbps in row["pays_below"]],
            )
            for row in crossovers
            if row["examples"] == examples
        }
        title = f"{examples} examples per rank" if examples else "sum alone"
        panels.append(figures.Panel(title, series, "ranks", "pays below Gb/s"))
    drawn = [y for panel in panels for _, ys in panel.series.values() for y in ys]
    decades = np.log10([y for y in drawn if np.isfinite(y)] or RANGE)
    within = 10 ** np.floor(decades.min()), 10 ** np.ceil(decades.max())
    figures.panels(path, panels, log="xy", within=within)
