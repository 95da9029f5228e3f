"""Run folders that are listed: names, states, and flags that differ."""

import math
import os
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from dml.runs import results
from dml.types import BadInput

MAIN = ("loss", "accuracy", "seconds", "energy_kwh", "co2_kg", "cost_usd")
PATH_FLAGS = ("out", "resume")  # not compared
TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-\d\d(?:\.\d+)?Z")
TAIL = 12  # number of lines of the output of a failed run on the page


class ListedRun(NamedTuple):
    """The files of a run, and its state."""

    name: str  # path of the run, relative to the common parent of all runs
    results: results.Run
    status: str  # see `results.status`
    tail: list[str]  # last lines of a run that failed or has not ended
    began: str  # time of the start, UTC

    @property
    def experiment(self) -> str:
        """Return the name of the parent folder, as in runs/<experiment>/<time>."""
        return os.path.basename(os.path.dirname(os.path.abspath(self.results.path)))


class Skipped(NamedTuple):
    """A folder that is not on the page."""

    path: str
    reason: str


class Same(NamedTuple):
    """A flag with one value in all runs that have it."""

    value: Any
    runs: int  # number of runs with the flag


def find_runs(
    paths: Iterable[Path], rows: bool = True
) -> tuple[list[ListedRun], list[Skipped]]:
    """Return every run at or under the paths, and the folders that cannot be read.

    Args:
      paths: Run folders, or folders of them.
      rows: Whether to read the rows.
    """
    skipped: list[Skipped] = []
    folders: set[Path] = set()
    for path in paths:
        try:
            folders.update(results.find_folders([path]))
        except (BadInput, OSError, ValueError) as error:
            skipped.append(Skipped(path_text(path), message(error)))
        skipped += failed_at_start(path)
    read = []
    for folder in sorted(folders):
        try:
            read.append(results.read(folder, rows))
        # RecursionError: JSON that is nested too deeply.
        except (BadInput, OSError, RecursionError) as error:
            skipped.append(Skipped(path_text(folder), message(error)))
    names = relative_names([run.path for run in read])
    runs = [listed_run(name, run) for name, run in zip(names, read, strict=True)]
    return runs, skipped


def counted(runs: Sequence[ListedRun]) -> str:
    """Return the number of runs as text."""
    return f"{len(runs)} run{'s' * (len(runs) != 1)}"


def listed_run(name: str, run: results.Run) -> ListedRun:
    """Return a run with its state."""
    tail = failure_lines(run.path)
    status = results.status(run.summary)
    if tail and status != results.INTERRUPTED:
        status = results.FAILED
    if status == results.FAILED and not tail:
        tail = [str(run.summary.get("error", "without a message"))]
    if status == results.NOT_ENDED:
        tail = last_lines(run.path / "output.txt")
    return ListedRun(name, run, status, tail, start_time(run.path))


def failure_lines(folder: Path) -> list[str]:
    """Return the last lines of a failed run from sweep.json, or []."""
    try:
        record = results.read_object(folder / "sweep.json")
        code = f"code {record['code']}" if record["code"] else ""
        text = str(record["error_message"] or code)
    # not a run of a sweep, or killed while writing
    except (BadInput, KeyError, RecursionError):
        return []
    return text.splitlines()[-TAIL:]


def failed_at_start(path: Path) -> list[Skipped]:
    """Return the runs of a sweep that failed before writing config.json."""
    return [
        Skipped(
            path_text(folder),
            f"failed before writing config.json: {failure_lines(folder)[-1]}",
        )
        for folder in sorted(record.parent for record in path.rglob("sweep.json"))
        if not (folder / "config.json").exists() and failure_lines(folder)
    ]


def relative_names(paths: Sequence[Path]) -> list[str]:
    """Return the paths relative to their common parent."""
    absolute = [os.path.abspath(path) for path in paths]
    if not absolute:
        return []
    shared = os.path.commonpath([os.path.dirname(path) for path in absolute])
    return [path_text(os.path.relpath(path, shared)) for path in absolute]


def path_text(path: Path | str) -> str:
    """Return a path as text; bytes that are not UTF-8 are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


def message(error: BaseException) -> str:
    """Return the message of an error in one line."""
    return " ".join(str(error).split())


def last_lines(path: Path) -> list[str]:
    """Return the last lines of output.txt, which only sweeps write."""
    if not path.is_file():  # reading a FIFO would block
        return []
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            return file.read().decode("utf-8", "replace").splitlines()[-TAIL:]
    except OSError:
        return []


def start_time(path: Path) -> str:
    """Return the start time: from the folder's name, or the age of config.json."""
    match = TIME.fullmatch(path.name)
    if match:
        return f"{match[1]} {match[2]}:{match[3]}"
    when = datetime.fromtimestamp((path / "config.json").stat().st_mtime, UTC)
    return f"{when:%Y-%m-%d %H:%M}"


def compare_flags(runs: Sequence[ListedRun]) -> tuple[list[str], dict[str, Same]]:
    """Return the flags with several values, and the flags with one value.

    Runs without a flag are ignored.
    """
    all_flags = dict.fromkeys(flag for run in runs for flag in run.results.flags)
    differ, same = [], {}
    for flag in all_flags:
        if flag in PATH_FLAGS:
            continue
        values = [run.results.flags[flag] for run in runs if flag in run.results.flags]
        # repr: 1, 1.0 and True are equal to Python, but not to an experiment.
        if len({repr(value) for value in values}) > 1:
            differ.append(flag)
        else:
            same[flag] = Same(values[0], len(values))
    return differ, same


def groups_of_seeds(runs: Sequence[ListedRun]) -> list[int]:
    """Return a number for each run, equal for runs that differ in the seed only."""
    names = [
        repr(
            (
                run.experiment,
                run.results.config.get("ranks"),
                sorted(
                    (flag, repr(value))
                    for flag, value in run.results.flags.items()
                    if flag != "seed" and flag not in PATH_FLAGS
                ),
            )
        )
        for run in runs
    ]
    order = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [order[name] for name in names]


def measures(runs: Sequence[ListedRun]) -> list[str]:
    """Return the names of all numbers in the summaries, the names in MAIN first."""
    return ordered(
        key
        for run in runs
        for key, value in run.results.summary.items()
        if number(value) is not None
    )


def ordered(names: Iterable[str]) -> list[str]:
    """Return the distinct names, the names in MAIN first."""
    distinct = dict.fromkeys(names)
    return [*(name for name in MAIN if name in distinct)] + [
        name for name in distinct if name not in MAIN
    ]


def number(value: Any) -> float | None:
    """Return a value of JSON as a number, NaN included; None for other values."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # integers of JSON are unbounded
        return math.inf if value > 0 else -math.inf


def total(runs: Sequence[ListedRun], measure: str) -> float | None:
    """Return the sum of a measure over all runs; None if no run has the measure."""
    values = [number(run.results.summary.get(measure)) for run in runs]
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return math.fsum(finite) if finite else None
