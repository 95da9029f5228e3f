"""Run folders in; what a page tells of them out: names, states, flags that differ."""

import math
import os
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from dml.metrics import results
from dml.types import BadInput

MAIN = ("loss", "accuracy", "seconds", "energy_kwh", "co2_kg", "cost_usd")
PLACES = ("out", "resume")  # flags that say where a run lies, not what it is
TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-\d\d(?:\.\d+)?Z")
TAIL = 12  # last lines that a failed run shows


class Told(NamedTuple):
    """A run, and what its folder says besides."""

    name: str  # its path, less what all share
    run: results.Run
    status: str
    tail: list[str]  # last lines of a run that failed or has not ended
    began: str

    @property
    def experiment(self) -> str:
        """Return the folder that holds the run, as runs/<experiment>/<time> has it."""
        return os.path.basename(os.path.dirname(os.path.abspath(self.run.path)))


class Skipped(NamedTuple):
    """A folder that is left out."""

    folder: str
    why: str


class Same(NamedTuple):
    """A flag with one value in all runs that have it."""

    value: Any
    runs: int


def gathered(paths: Iterable[Path]) -> tuple[list[Told], list[Skipped]]:
    """Read every run folder at or under the paths; tell what cannot be read."""
    skipped: list[Skipped] = []
    folders: set[Path] = set()
    for path in paths:
        try:
            folders.update(results.found([path]))
        except (BadInput, OSError, ValueError) as error:
            skipped.append(Skipped(shown(path), line(error)))
        skipped += unborn(path)
    runs = []
    for folder in sorted(folders):
        try:
            runs.append(results.read(folder))
        # RecursionError: brackets in brackets, deeper than Python's own reader goes.
        except (BadInput, OSError, RecursionError) as error:
            skipped.append(Skipped(shown(folder), line(error)))
    names = named([run.path for run in runs])
    return [told(*each) for each in zip(names, runs, strict=True)], skipped


def told(name: str, run: results.Run) -> Told:
    says = failure(run.path)
    if says:
        return Told(name, run, "failed", says, began(run.path))
    if run.summary:
        return Told(name, run, "done", [], began(run.path))
    tail = last_lines(run.path / "output.txt")
    return Told(name, run, "not ended", tail, began(run.path))


def failure(folder: Path) -> list[str]:
    """Return what a sweep kept of how a run failed; nothing where it did not."""
    try:
        ended = results.parsed(folder / "sweep.json")
        says = str(ended["says"] or (f"code {ended['code']}" if ended["code"] else ""))
    except (BadInput, KeyError, RecursionError):  # no sweep, or killed in writing
        return []
    return says.splitlines()[-TAIL:]


def unborn(path: Path) -> list[Skipped]:
    """Return the runs of a sweep that failed before they had a run folder's files."""
    return [
        Skipped(shown(folder), f"failed before it began: {failure(folder)[-1]}")
        for folder in sorted(record.parent for record in path.rglob("sweep.json"))
        if not (folder / "config.json").exists() and failure(folder)
    ]


def named(paths: Sequence[Path]) -> list[str]:
    """Return the paths less what they share; no name is empty."""
    whole = [os.path.abspath(path) for path in paths]
    if not whole:
        return []
    shared = os.path.commonpath([os.path.dirname(path) for path in whole])
    return [shown(os.path.relpath(path, shared)) for path in whole]


def shown(path: Path | str) -> str:
    """Return a path as text, whatever bytes it has."""
    return os.fsencode(path).decode("utf-8", "replace")


def line(error: BaseException) -> str:
    return " ".join(str(error).split())


def last_lines(path: Path) -> list[str]:
    """Return the end of what a sweep kept of a run's output; none where it did not."""
    if not path.is_file():  # a pipe would hang
        return []
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            return file.read().decode("utf-8", "replace").splitlines()[-TAIL:]
    except OSError:
        return []


def began(path: Path) -> str:
    """Return when a run began, by its folder's name or else by its first file."""
    match = TIME.fullmatch(path.name)
    if match:
        return f"{match[1]} {match[2]}:{match[3]}"
    when = datetime.fromtimestamp((path / "config.json").stat().st_mtime, UTC)
    return f"{when:%Y-%m-%d %H:%M}"


def compared(runs: Sequence[Told]) -> tuple[list[str], dict[str, Same]]:
    """Return the flags that differ between runs, and those that are the same.

    A flag that only some runs have (other experiments lack it) differs if those differ.
    """
    every = dict.fromkeys(flag for each in runs for flag in each.run.flags)
    differ, same = [], {}
    for flag in every:
        if flag in PLACES:
            continue
        values = [each.run.flags[flag] for each in runs if flag in each.run.flags]
        # repr: 1, 1.0 and True are equal to Python, but not to an experiment.
        if len({repr(value) for value in values}) > 1:
            differ.append(flag)
        else:
            same[flag] = Same(values[0], len(values))
    return differ, same


def measures(runs: Sequence[Told]) -> list[str]:
    """Return the names of all numbers in the summaries, the main ones first."""
    return ordered(
        key
        for each in runs
        for key, value in each.run.summary.items()
        if number(value) is not None
    )


def ordered(names: Iterable[str]) -> list[str]:
    """Return each name once: the main ones first, then as they came."""
    found = dict.fromkeys(names)
    return [*(name for name in MAIN if name in found)] + [
        name for name in found if name not in MAIN
    ]


def number(value: Any) -> float | None:
    """Return a value of JSON as a number, which NaN is; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # JSON's whole numbers have no bounds
        return math.inf if value > 0 else -math.inf


def total(runs: Sequence[Told], measure: str) -> float | None:
    """Return the sum of a measure over the runs that have it; None without any."""
    found = [number(each.run.summary.get(measure)) for each in runs]
    finite = [each for each in found if each is not None and math.isfinite(each)]
    return math.fsum(finite) if finite else None
