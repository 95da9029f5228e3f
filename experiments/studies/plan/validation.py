"""Tables, figure and summary of plan.py --validate."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dml.figures import style as figures
from dml.planner import calibration as calibrations
from dml.planner import published
from dml.planner import validation as judging
from dml.planner.published import Refused
from dml.planner.validation import Judged
from dml.runs.results import Run
from dml.runs.writers import Columns, Row
from dml.types import BadInput

PACKAGED = "published"
DATA = Path(published.__file__).parents[1] / "data" / "published_runs.csv"
CALCULON = {  # median error in percent, measured with its A100 file, unmodified
    "NVIDIA/Megatron-LM": 10.7,
    "calculon-ai/calculon": 2.5,
    "VIA-Research/vTrain": 9.7,
    "bigscience-workshop/bigscience": 29.0,
}


class Read(NamedTuple):
    """A file of published runs, judged."""

    judged: list[Judged]
    refused: list[Refused]


def path_of(text: str) -> Path:
    """Return the path of a file, or of the packaged one."""
    path = DATA if text == PACKAGED else Path(text)
    if not path.is_file():
        raise BadInput(f"expected a CSV file or {PACKAGED}, got {text}; check the path")
    return path


def read(text: str) -> Read:
    """Return the judged rows of a file."""
    rows, refused = published.parse(published.read(path_of(text)))
    if not rows:
        raise BadInput(
            f"expected rows that can be predicted, got {len(refused)} that cannot: "
            f"{refused[0].reason if refused else 'the file is empty'}; complete them"
        )
    return Read(judging.judge(rows, calibrations.load()), refused)


def percent(name: str, digits: int = 1, sign: str = "") -> Any:
    """Return the function of a cell in percent."""
    return lambda row: f"{100 * row[name]:{sign}.{digits}f}" if row["rows"] else "-"


COLUMNS: dict[str, Columns] = {
    "errors": {
        "source": (31, "{source:<31}"),
        "rows": (4, "{rows:d}"),
        "refused": (7, "{refused:d}"),
        "median": (6, percent("median_error")),
        "null": (5, percent("null_median_error")),
        "p90": (5, percent("p90_error")),
        "null ": (5, percent("null_p90_error")),
        "in 80 %": (7, percent("coverage_80", 0)),
        "Calculon": (8, lambda row: f"{CALCULON.get(row['source'], '-')}"),
        "fitted": (6, "{fitted:d}"),
        "bias": (6, percent("bias", 1, "+")),
    },
    "sweeps": {
        "sweep": (31, "{source:<31}"),
        "model": (20, "{model}"),
        "devices": (7, "{devices}"),
        "tau": (5, "{kendall_tau:.2f}"),
        "regret": (6, "{regret:.1%}"),
        "meshes": (6, "{meshes:d}"),
        "null tau": (8, "{null_tau:.2f}"),
    },
    "memory": {
        "published": (9, "{memory_rows:d}"),
        "median error": (12, "{memory_median_error:.1%}"),
        "out of memory": (13, "{oom_rows:d}"),
        "found": (5, "{oom_found:d}"),
        "fitted": (6, "{fits_rows:d}"),
        "refused": (7, "{fits_refused:d}"),
    },
    "refused": {
        "refused": (7, "{count:d}"),
        "reason": (60, "{reason:<60}"),
    },
}
TITLES = {
    "errors": "Errors in % of seconds per step, of rows that were not fitted; null: "
    "one rate for each source, device and precision, fitted to the same rows",
    "sweeps": "Sweeps of meshes: rank correlation, and how much slower the pick is",
    "memory": "Memory of a device",
    "refused": "Rows that are not predicted",
}


def errors(found: Read, _: Mapping[str, list[Row]]) -> Iterator[Row]:
    """Yield the errors of all rows and of each source."""
    yield from judging.by_source(found.judged, found.refused)


def sweeps(found: Read, _: Mapping[str, list[Row]]) -> Iterator[Row]:
    """Yield the sweeps."""
    yield from judging.sweeps(found.judged)


def memory(found: Read, _: Mapping[str, list[Row]]) -> Iterator[Row]:
    """Yield the errors of memory."""
    yield judging.memory_summary(found.judged)


def refused(found: Read, _: Mapping[str, list[Row]]) -> Iterator[Row]:
    """Yield the reasons of refusals with their counts."""
    reasons: dict[str, int] = {}
    for row in found.refused:
        reasons[row.reason] = reasons.get(row.reason, 0) + 1
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
        yield {"count": count, "reason": reason}


TABLES = {"errors": errors, "sweeps": sweeps, "memory": memory, "refused": refused}
KEYS = (
    *("rows", "refused", "median_error", "p90_error"),
    *("null_median_error", "null_p90_error", "coverage_80"),
)


def totals(found: Read, tables: Mapping[str, list[Row]]) -> dict[str, Any]:
    """Return the summary: of all rows, of each source and of each sweep."""
    whole, *each = tables["errors"]
    summary: dict[str, Any] = {key: whole[key] for key in KEYS}
    summary["sources"] = {row["source"]: {k: row[k] for k in KEYS} for row in each}
    summary["sweeps"] = {
        f"{r['source']} {r['model']}, {r['devices']} devices, batch {r['batch']}": {
            "kendall_tau": r["kendall_tau"],
            "regret": r["regret"],
            "meshes": r["meshes"],
        }
        for r in tables["sweeps"]
    }
    return summary | dict(tables["memory"][0])


def conclude(run: Run) -> str:
    """Return the errors of all rows."""
    summary = run.summary
    return (
        f"{summary['rows']} rows that were not fitted: median error "
        f"{summary['median_error']:.1%} (null {summary['null_median_error']:.1%}), "
        f"90 % below {summary['p90_error']:.1%} "
        f"(null {summary['null_p90_error']:.1%}); {summary['coverage_80']:.0%} of "
        "them in their 80 % interval. Memory: "
        f"{summary['memory_median_error']:.1%}, {summary['oom_found']} of "
        f"{summary['oom_rows']} runs out of memory found, {summary['fits_refused']} of "
        f"{summary['fits_rows']} that fitted refused."
    )


def draw(path: Path, found: Read) -> None:
    """Draw predicted against published seconds, by source."""
    held = [j for j in found.judged if j.held_out and j.row.seconds]
    if not held:
        return
    sources = sorted(
        {j.row.source for j in held},
        key=lambda name: -sum(j.row.source == name for j in held),
    )
    with figures.drawing(path, size=(6.4, 5.4), style=figures.PICTURE) as (_, (axes,)):
        for index, name in enumerate(sources):
            points = [(j.row.seconds, j.seconds) for j in held if j.row.source == name]
            marker = "osD^vP*X"[index % 8]
            label = name.split("/")[-1] if index < 10 else None
            axes.scatter(*zip(*points, strict=True), s=14, marker=marker, label=label)
        ends = [min(j.row.seconds for j in held), max(j.row.seconds for j in held)]
        axes.plot(ends, ends, color="gray", linewidth=0.8)
        axes.set(xscale="log", yscale="log")
        axes.set(xlabel="published s per step", ylabel="predicted s per step")
        axes.legend(fontsize=7)
