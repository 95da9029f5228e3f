"""Steps of a GPT on this machine's cores, beside the planner's prediction.

    probe.py    rates of p ranks ─────── Device ─┐   one half: two constants
    hybrid.py   seconds of each mesh of p ranks ─┴─► the other half: errors

A core is a device. The rates of p ranks are measured while all p compute, so they are
those of a part of a core if there are more ranks than cores.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lab import started
from lab.progress import PROGRESS
import numpy as np

from dml.figures import style as figures
from dml.planner import calibration as calibrations
from dml.planner import fitting, search
from dml.planner import runs as columns
from dml.planner.devices import Device
from dml.planner.physics import TYPICAL, Constants, Physics
from dml.planner.runs import Mesh, Runs
from dml.planner.shapes import Shape
from dml.runs.results import Run
from dml.runs.writers import Columns, Row

PROBE = Path(__file__).with_name("probe.py")
PRIOR = 0.1  # rows that the typical constants count for
CLOSE = 0.1  # relative error


class Setting(NamedTuple):
    """Sizes of a GPT and of its step."""

    blocks: int
    width: int
    length: int
    batch: int = 16
    microbatches: int = 4
    heads: int = 8

    def flags(self) -> list[str]:
        """Return the flags of hybrid.py."""
        values = [f"--{name}={value}" for name, value in self._asdict().items()]
        return [*values, "--steps=7", "--pipeline=gpipe", "--mesh=all"]


SETTINGS = (Setting(4, 256, 64), Setting(4, 128, 128))
COLUMNS: dict[str, Columns] = {
    "steps": {
        "ranks": (5, "{ranks:d}"),
        "mesh": (24, "{mesh}"),
        "blocks": (6, "{blocks:d}"),
        "width": (5, "{width:d}"),
        "length": (6, "{length:d}"),
        "ms": (7, lambda row: f"{1e3 * row['seconds']:.1f}"),
        "predicted": (9, lambda row: f"{1e3 * row['predicted']:.1f}"),
        "error": (6, "{error:+.1%}"),
        "fitted": (6, lambda row: "yes" if row["fitted"] else ""),
    },
    "rates": {
        "ranks": (5, "{ranks:d}"),
        "Gflop/s": (7, lambda row: f"{row['peak'] / 1e9:.1f}"),
        "GB/s": (6, lambda row: f"{row['bandwidth'] / 1e9:.1f}"),
        "us a round": (10, lambda row: f"{1e6 * row['alpha']:.0f}"),
        "GB/s of a rank": (14, lambda row: f"{row['link'] / 1e9:.2f}"),
    },
}
TITLES = {
    "rates": "Rates of a rank while all compute",
    "steps": "Seconds of a step: measured, and predicted by two constants that were "
    "fitted to half of the rows",
}


class Measured(NamedTuple):
    """A mesh with its sizes and its seconds."""

    ranks: int
    setting: Setting
    mesh: Mesh
    vocabulary: int
    seconds: float

    @property
    def text(self) -> str:
        """The identity of the row, by whose hash it is in one half."""
        return f"{self.ranks} {tuple(self.setting)} {search.describe(self.mesh)}"

    @property
    def fitted(self) -> bool:
        """Whether constants are fitted to the row: the parity of its hash."""
        return hashlib.sha256(self.text.encode()).digest()[-1] % 2 == 0


class Here(NamedTuple):
    """This machine: rates by number of ranks, and measured steps."""

    rates: Mapping[int, Mapping[str, float]]
    measured: Sequence[Measured]


def measure(ranks: Sequence[int], path: Path) -> Here:
    """Measure rates and steps of these numbers of ranks; run folders are in `path`."""
    rates, measured = {}, []
    for count in PROGRESS.each(ranks):
        words = [*started.python(count, pinned=True), str(PROBE)]
        rates[count] = json.loads(started.output("probe.py", words).splitlines()[-1])
        for number, setting in enumerate(SETTINGS):
            out = path / f"{count}-{number}"
            options, name = setting.flags(), "hybrid.py"
            run = started.run(name, count, name, options, out, pinned=True)
            measured += list(read(count, setting, run))
    return Here(rates, measured)


def read(ranks: int, setting: Setting, run: Run) -> Iterator[Measured]:
    """Yield the meshes of a run of hybrid.py; its first row has one device."""
    from dml.wire.mesh import axes  # slow: JAX

    micro = setting.batch / setting.microbatches
    for row in run.rows[1:]:
        sizes = axes.parse(row["mesh"], ranks)
        mesh = Mesh(**sizes, micro_batch=micro / sizes["data"])
        duration = setting.batch * setting.length / row["tokens_per_second"]
        vocabulary = run.flags["vocabulary"]
        yield Measured(ranks, setting, mesh, vocabulary, duration)


def to_runs(row: Measured, rates: Mapping[str, float]) -> Runs:
    """Return the sizes of a step on a machine with these rates."""
    size = row.setting
    shape = Shape(
        size.blocks, size.width, size.heads, 4 * size.width, row.vocabulary, size.length
    )
    peak = rates["peak"] / 1e12
    core = Device(
        peak,
        peak8=peak,
        peak32=peak,
        peak_tf32=peak,
        memory=1.0,
        bandwidth=rates["bandwidth"] / 1e12,
        processors=-1,
        link=rates["link"] / 1e9,
        network=8 * rates["link"] / 1e9,
        node=row.ranks,
    )
    run = columns.make(
        shape, row.mesh, core, size.batch, "fp32", fused=False, modern=False
    )
    return run._replace(sharing=max(1.0, row.ranks / cores()))


def cores() -> int:
    """Return the number of cores of this process."""
    count = getattr(os, "sched_getaffinity", None)
    return len(count(0)) if count else os.cpu_count() or 1


def physics(here: Here) -> Physics:
    """Return the numbers of all devices; those of messages were measured here."""
    alpha: Any = np.array([here.rates[row.ranks]["alpha"] for row in here.measured])
    return calibrations.load().physics._replace(
        latency=alpha, link_torus=1.0, network=1.0
    )


def predict(here: Here) -> tuple[np.ndarray, Constants]:
    """Return the predicted seconds of all rows, and the fitted constants."""
    rows = [to_runs(row, here.rates[row.ranks]) for row in here.measured]
    table = columns.stack(rows)
    both = np.stack(fitting.halves(table, physics(here)), 1)
    known = np.array([row.seconds for row in here.measured])
    inside = np.array([row.fitted for row in here.measured])
    ratios = (both / known[:, None])[inside]
    constants = fitting.fit_pair(ratios, TYPICAL, PRIOR)
    return both @ np.array(constants), constants


def rates(here: Here, _: Mapping[str, list[Row]]) -> Iterator[Row]:
    """Yield the rates of each number of ranks."""
    for ranks, found in here.rates.items():
        yield {"ranks": ranks, **found}


def steps(here: Here, _: Mapping[str, list[Row]]) -> Iterator[Row]:
    """Yield the steps, measured and predicted."""
    predicted = predict(here)[0]
    for row, value in zip(here.measured, predicted.tolist(), strict=True):
        yield {
            "ranks": row.ranks,
            "mesh": search.describe(row.mesh),
            **row.setting._asdict(),
            "seconds": row.seconds,
            "predicted": value,
            "error": value / row.seconds - 1,
            "fitted": row.fitted,
        }


TABLES = {"rates": rates, "steps": steps}


def totals(here: Here, tables: Mapping[str, list[Row]]) -> dict[str, Any]:
    """Return the summary: errors of the rows that were not fitted."""
    rows = tables["steps"]
    held = [row for row in rows if not row["fitted"]] or rows
    errors = np.abs([row["error"] for row in held])
    constants = predict(here)[1]
    return {
        "rows": len(rows),
        "held_out": len(held),
        "median_error": float(np.median(errors)),
        "largest_error": float(errors.max()),
        "within_10_percent": int((errors <= CLOSE).sum()),
        "constants": constants._asdict(),
    }


def conclude(run: Run) -> str:
    """Return the errors of the rows that were not fitted."""
    summary = run.summary
    return (
        f"{summary['within_10_percent']} of {summary['held_out']} steps that were not "
        "fitted are predicted within 10 %: median error "
        f"{summary['median_error']:.1%}, at most {summary['largest_error']:.1%}."
    )


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw predicted against measured seconds, by number of ranks."""
    with figures.drawing(path, size=(5.4, 4.6), style=figures.PICTURE) as (_, (plot,)):
        for ranks in dict.fromkeys(row["ranks"] for row in rows):
            held = [r for r in rows if r["ranks"] == ranks and not r["fitted"]]
            points = [(r["seconds"], r["predicted"]) for r in held]
            if points:
                label = f"{ranks} ranks" if ranks > 1 else "1 rank"
                plot.scatter(*zip(*points, strict=True), s=18, label=label)
        ends = [min(r["seconds"] for r in rows), max(r["seconds"] for r in rows)]
        plot.plot(ends, ends, color="gray", linewidth=0.8)
        plot.set(xscale="log", yscale="log")
        plot.set(xlabel="measured s per step", ylabel="predicted s per step")
        plot.legend(fontsize=7)
