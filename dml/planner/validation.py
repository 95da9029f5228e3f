"""Errors of the planner on published runs, and those of a constant rate.

    null model    one flop rate for each source, device and precision: the median of the
                  very rows that it is judged on
    sweep         rows of one source, model, batch and number of devices with at least
                  four meshes: rank correlation, and how much slower the picked mesh is
    memory        published bytes; runs that ended out of memory, and runs that fitted
    coverage      fraction of rows whose seconds lie in the 80 % interval

Rows that the constants were fitted to are left out. A file without such rows, as a
second collection, is judged whole.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.planner import calibration as calibrations
from dml.planner import memory, runs, seconds
from dml.planner.calibration import Calibration
from dml.planner.fitting import DIGITS
from dml.planner.published import Published, Refused, digest
from dml.planner.runs import PRECISIONS

Row = dict[str, Any]
MESHES = 4  # least number of meshes of a sweep
MODEL = ("model", "layers", "hidden", "heads", "seq", "global_batch")
STEP = ("device", "precision", "devices", "recompute")
MESH = ("tp", "pp", "dp", "cp", "ep", "micro_batch", "zero", "interleave")


class Judged(NamedTuple):
    """A row with its prediction."""

    row: Published
    seconds: float
    low: float  # 80 % interval of the seconds
    high: float
    memory: float  # bytes
    null: float  # seconds of the null model
    held_out: bool

    @property
    def error(self) -> float:
        """Relative error of the seconds."""
        return abs(self.seconds / self.row.seconds - 1)

    @property
    def null_error(self) -> float:
        """Relative error of the null model."""
        return abs(self.null / self.row.seconds - 1)


def judge(published: Sequence[Published], calibration: Calibration) -> list[Judged]:
    """Return all rows with their predictions; those without seconds have NaN."""
    if not published:
        return []
    table = runs.stack([row.runs for row in published])
    precisions = [PRECISIONS[int(row.runs.precision)] for row in published]
    constants, known = calibrations.constants_of(
        calibration, [row.kind for row in published], precisions
    )
    found = seconds.total(seconds.parts(table, calibration.physics, constants))
    used = memory.total(memory.parts(table, calibration.sizes))
    fitted = set(calibration.rows)
    held = [digest(row.row)[:DIGITS] not in fitted for row in published]
    null = null_seconds(published, held)
    judged = []
    for index, row in enumerate(published):
        low, high = calibration.band if known[index] else calibration.wide_band
        value = float(found[index])
        judged.append(
            Judged(
                row,
                value,
                value * low,
                value * high,
                float(used[index]),
                null[index],
                held[index],
            )
        )
    return judged


def null_seconds(published: Sequence[Published], held: Sequence[bool]) -> list[float]:
    """Return the seconds by a constant rate: the median of the rows that are judged."""
    rates = defaultdict(list)
    keys = [(row.source, row.kind, row.precision) for row in published]
    for key, row, judged in zip(keys, published, held, strict=True):
        if row.seconds:
            rates[key, judged].append(row.seconds / flops_of_device(row))
    return [
        flops_of_device(row) * float(np.median(rates.get((key, judged), [np.nan])))
        for key, row, judged in zip(keys, published, held, strict=True)
    ]


def flops_of_device(row: Published) -> float:
    """Return the flops of a step on one device."""
    return float(row.runs.flops / row.runs.devices)


def by_source(judged: Sequence[Judged], refused: Sequence[Refused]) -> list[Row]:
    """Return the errors of the rows that are held out, for each source and for all."""
    names = dict.fromkeys([j.row.source for j in judged] + [r.source for r in refused])
    rows = [
        errors(
            name,
            [j for j in judged if j.row.source == name],
            sum(r.source == name for r in refused),
        )
        for name in names
    ]
    rows = [row for row in rows if row["rows"] or row["refused"]]
    rows.sort(key=lambda row: -row["rows"])
    return [errors("all", judged, len(refused)), *rows]


def errors(name: str, judged: Sequence[Judged], refused: int) -> Row:
    """Return one row of the table of errors."""
    timed = [j for j in judged if j.held_out and j.row.seconds]
    own = [j.error for j in timed]
    null = [j.null_error for j in timed]
    median, null_median = quantile(own, 0.5), quantile(null, 0.5)
    return {
        "source": name,
        "rows": len(timed),
        "fitted": sum(not j.held_out for j in judged),
        "refused": refused,
        "median_error": median,
        "p90_error": quantile(own, 0.9),
        "null_median_error": null_median,
        "null_p90_error": quantile(null, 0.9),
        "skill": 1 - median / null_median if null_median else None,
        "bias": quantile([j.seconds / j.row.seconds - 1 for j in timed], 0.5),
        "coverage_80": mean([j.low <= j.row.seconds <= j.high for j in timed]),
    }


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile; 0 without values."""
    return float(np.quantile(values, share)) if values else 0.0


def mean(values: Sequence[float]) -> float:
    """Return the mean; 0 without values."""
    return float(np.mean(values)) if values else 0.0


def sweeps(judged: Sequence[Judged]) -> list[Row]:
    """Return rank correlation and regret of each sweep of meshes, of all its rows.

    Ranks need more rows than a half has. `held_out` counts rows that were not fitted.
    """
    groups = defaultdict(list)
    for j in judged:
        if j.row.seconds:
            text = j.row.row
            key = (j.row.source, *(text[name] for name in MODEL + STEP))
            groups[key].append(j)
    rows = []
    for key, members in groups.items():
        meshes = defaultdict(list)
        for j in members:
            meshes[tuple(j.row.row[name] for name in MESH)].append(j)
        if len(meshes) < MESHES or len({mesh[:3] for mesh in meshes}) < 3:
            continue
        measured = [median_of(group, "row") for group in meshes.values()]
        predicted = [median_of(group, "own") for group in meshes.values()]
        null = [median_of(group, "null") for group in meshes.values()]
        picked = measured[int(np.argmin(predicted))]
        rows.append(
            {
                "source": key[0],
                "model": key[1],
                "batch": key[6],
                "devices": key[9],
                "meshes": len(meshes),
                "held_out": sum(j.held_out for j in members),
                "kendall_tau": kendall(measured, predicted),
                "regret": picked / min(measured) - 1,
                "null_tau": kendall(measured, null),
            }
        )
    return sorted(rows, key=lambda row: -row["meshes"])


def median_of(group: Sequence[Judged], which: str) -> float:
    """Return the median seconds of rows of one mesh: measured, own or of the null."""
    values = {
        "row": [j.row.seconds for j in group],
        "own": [j.seconds for j in group],
        "null": [j.null for j in group],
    }[which]
    return float(np.median(values))


def kendall(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Kendall's τ: concordant less discordant pairs over all pairs; NaN for one.

    Pairs that are equal in one of the two count as neither.
    """
    a, b = np.asarray(first, float), np.asarray(second, float)
    above = np.triu_indices(len(a), 1)
    signs = np.sign(a[above[0]] - a[above[1]]) * np.sign(b[above[0]] - b[above[1]])
    return float(signs.mean()) if len(signs) else float("nan")


def memory_summary(judged: Sequence[Judged]) -> Row:
    """Return the errors of memory, and of judgements which runs fit."""
    known = [j for j in judged if j.row.memory and j.held_out]
    failed = [j for j in judged if j.row.failed]
    fitted = [j for j in judged if not j.row.failed]
    return {
        "memory_rows": len(known),
        "memory_median_error": quantile(
            [abs(j.memory / j.row.memory - 1) for j in known], 0.5
        ),
        "oom_rows": len(failed),
        "oom_found": sum(not fits(j) for j in failed),
        "fits_rows": len(fitted),
        "fits_refused": sum(not fits(j) for j in fitted),
    }


def fits(judged: Judged) -> bool:
    """Return whether the predicted memory is at most that of the device."""
    return judged.memory <= float(judged.row.runs.memory)
