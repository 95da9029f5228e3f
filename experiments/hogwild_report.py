"""What hogwild.py shows: turns in; rows, two tables and figures out."""

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from hogwild_runs import SERIAL, Case, Turns, seconds, speedup

from dml.metrics import figures, server_figure, writers
from dml.metrics.server_figure import Panel
from dml.metrics.writers import Row, Writer
from dml.types import Problem


def row(
    problem: Problem, case: Case, turns: tuple[Turns, Turns], updates: int
) -> dict[str, Any]:
    """Return what the table says of a case: of turns that were timed, and counted."""
    timed, counted = turns
    objectives = [
        problem.kernel.model.objective(timed[one][0].table, problem.kernel.data)
        for one in (case, SERIAL)
    ]
    way, count = case
    return {
        "kind": "race",
        "way": way,
        "workers": count,
        "updates_per_second": updates / seconds(timed[case]),
        "speedup": speedup(timed[SERIAL], timed[case]),
        "objective": objectives[0],
        "to_serial": objectives[0] / objectives[1] - 1,
        "lost_share": counted[case][0].lost_share if case in counted else 0.0,
    }


WHO = {
    "problem": (10, lambda row: row["problem"]),
    "way": (10, lambda row: row["way"]),
    "workers": (7, lambda row: f"{row['workers']}"),
    "updates/s": (11, lambda row: f"{row['updates_per_second']:,.0f}"),
    "speed-up": (8, lambda row: f"{row['speedup']:.2f}"),
}
COLUMNS = WHO | {
    "objective": (9, lambda row: f"{row['objective']:.5f}"),
    "to serial": (9, lambda row: f"{row['to_serial']:+.2%}"),
    "lost": (7, lambda row: f"{row['lost_share']:.1e}" if row["lost_share"] else "0"),
    "omega": (5, lambda row: f"{row['omega']}"),
    "delta": (7, lambda row: f"{row['delta']:.4f}"),
    "rho": (7, lambda row: f"{row['rho']:.4f}"),
}
DELAYED = WHO | {
    "delay us": (8, lambda row: f"{row['delay_us']:g}"),
    "gradient us": (11, lambda row: f"{row['gradient_us']:.2f}"),
}


KINDS = {"race": COLUMNS, "delay": DELAYED}


@contextmanager
def tables(kinds: Mapping[str, Mapping]) -> Iterator[Writer]:
    """Print the rows of each kind under a header of their own."""
    with ExitStack() as stack:
        every = {
            kind: stack.enter_context(writers.table(columns))
            for kind, columns in kinds.items()
        }
        yield Writer(lambda row: every[row["kind"]].row(row), writers.ignore)


def machine() -> dict[str, Any]:
    """Return what the numbers are of: the processor, and its cores."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return {"processor": (names or [platform.machine()])[0], "cores": os.cpu_count()}


def drawn(path: Path, rows: Sequence[Row]) -> None:
    """Draw the speed-ups by workers, a panel a problem, and by a gradient's time."""

    def curves(mine: Sequence[Row], x: str) -> dict[str, figures.Curve]:
        ways = dict.fromkeys(row["way"] for row in mine if row["way"] != SERIAL[0])
        found = {way: [row for row in mine if row["way"] == way] for way in ways}
        return {
            way: ([row[x] for row in some], [row["speedup"] for row in some])
            for way, some in found.items()
        }

    races = [row for row in rows if row["kind"] == "race"]
    rhos = {row["problem"]: row["rho"] for row in races}
    panels = [
        Panel(
            f"{name}, ρ = {rho:.2g}",
            curves([row for row in races if row["problem"] == name], "workers"),
            *("workers", "speed-up over serial"),
        )
        for name, rho in rhos.items()
    ]
    top = max(row["speedup"] for row in races)
    server_figure.progress(path / "speedup", panels, within=(0, 1.05 * top))
    if delays := [row for row in rows if row["kind"] == "delay"]:
        labels = {"x": "microseconds a gradient", "y": "speed-up over serial"}
        series = curves(delays, "gradient_us")
        figures.curves(path / "delays", series, **labels, log="x")
