"""One table of runs of allreduce.py and collectives.py under several MPI libraries."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab.claims import grouped

from dml.figures.allreduce_times import ratio
from dml.runs import results
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, scaled_cell
from dml.types import BadInput
from dml.wire.collectives import AUTO, COLLECTIVES

MPI = "native"


def read(text: str) -> dict[str, list[Row]]:
    """Return the rows of folders by library, the name up to the last dash.

    text: Folders such as runs/mpich-2,runs/mpich-8,runs/openmpi-2.
    """
    found: dict[str, list[Row]] = {}
    for path in map(Path, text.split(",")):
        run = results.read(path)
        rows = [
            {"collective": "allreduce"} | row
            for row in run.rows
            if "native_seconds" in row
        ]
        if not rows or run.flags.get("simulate"):
            raise BadInput(
                "expected a run of allreduce.py or collectives.py on real ranks, got "
                f"{path}; pass folders of --out"
            )
        name = path.name.rpartition("-")[0] or path.name
        found.setdefault(name, []).extend(rows)
    return found


def rows(libraries: dict[str, list[Row]]) -> Iterator[Row]:
    """Yield a row for each collective, number of ranks, size and kind of memory.

    Messages take as long from registered memory as from plain memory. Of collectives
    other than all-reduces, collectives.py times them on plain memory only.
    """
    every = [
        row | {"library": name} for name, rows in libraries.items() for row in rows
    ]
    keys = "collective", "p", "bytes", "registered"
    groups = grouped(every, *keys)
    for key, group in sorted(groups.items()):
        if key[0] != "allreduce" and key[-1]:
            group = [*group, *groups.get((*key[:-1], False), [])]
        names = COLLECTIVES[key[0]].keys() - AUTO - {MPI}
        own = [row for row in group if row["algorithm"] in names]
        chosen = [row for row in group if row["algorithm"] == "auto"]
        best = min(own, key=lambda row: row["seconds"], default=None)
        native = {
            name: min(row["native_seconds"] for row in of_library)
            for name, of_library in grouped(group, "library").items()
        }
        yield {
            **dict(zip(keys, key, strict=True)),
            **{f"{name}_seconds": native.get(name) for name in libraries},
            "mpi_seconds": min(native.values()),
            "algorithm": best["algorithm"] if best else "",
            "library": best["library"] if best else "",
            "seconds": best["seconds"] if best else None,
            "auto_seconds": min((row["seconds"] for row in chosen), default=None),
        }


def columns(libraries: Sequence[str]) -> Columns:
    """Return the columns of the table."""

    def speed(key: str) -> Any:
        return lambda row: ratio(row["mpi_seconds"], row[key]) if row[key] else "-"

    return {
        "collective": (10, "{collective}"),
        "p": (3, "{p}"),
        "bytes": (11, "{bytes:,}"),
        "buffer": (10, lambda row: "registered" if row["registered"] else "plain"),
        **{name: (9, scaled_cell(f"{name}_seconds", 1e3, ".4f")) for name in libraries},
        "fastest": (16, "{algorithm}"),
        "x MPI": (6, speed("seconds")),
        "auto x MPI": (10, speed("auto_seconds")),
        "under": (10, "{library}"),
        "ms": (9, scaled_cell("seconds", 1e3, ".4f")),
    }


def conclude(run: Run) -> str:
    """Return the least speed relative to the fastest MPI library."""
    timed = [row for row in run.rows if row.get("seconds")]
    if not timed:
        return "No all-reduce was timed."
    slowest = min(timed, key=lambda row: row["mpi_seconds"] / row["seconds"])
    speed = slowest["mpi_seconds"] / slowest["seconds"]
    kind = "registered" if slowest["registered"] else "plain"
    return (
        f"The fastest algorithm has at least {speed:.3g} times the speed of the "
        f"fastest MPI library: {slowest['collective']}, p = {slowest['p']}, "
        f"{slowest['bytes']:,} bytes, {kind}."
    )
