"""LOG: the run folder. Flags and rows in; config, metrics and summary as JSON out."""

import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dml.metrics.writers import Row, Writer, jsonl
from dml.types import BadInput


def path(out: str | None, experiment: str) -> Path:
    """Return the folder out, or runs/<experiment>/<UTC time> where none is given."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%fZ")
    return Path(out) if out else Path("runs", experiment, now)


@contextmanager
def folder(
    path: Path, flags: Mapping[str, Any], append: bool = False, ranks: int = 1
) -> Iterator[Writer]:
    """Make the folder; write config.json now, metrics.jsonl by rows, summary.json.

    A run that goes on appends its rows to those that are there.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        # A run that is killed must not seem to have ended as one before it did.
        (path / "summary.json").unlink(missing_ok=True)
        dump(path / "config.json", config(flags, ranks))
    except OSError as error:
        raise BadInput(
            f"expected a folder to write to, got {error}; pass --out=<a new folder>"
        ) from error
    with jsonl(path / "metrics.jsonl", append) as rows:

        def summary(summary: Row) -> None:
            dump(path / "summary.json", summary)

        yield Writer(rows.row, summary)


def config(flags: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    """Return what one needs to repeat a run: flags, ranks, versions, host, commit."""
    packages = [name for name in ("numpy", "jax", "mpi4py") if name in sys.modules]
    versions = {name: version(name) for name in packages}
    return {
        "flags": dict(flags),
        "ranks": ranks,
        "versions": {"python": platform.python_version()} | versions,
        "host": platform.node(),
        "commit": commit(),
    }


def commit() -> str | None:
    """Return this code's git commit, "-dirty" where files differ; None outside git."""
    options = ["--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        found = subprocess.run(
            ["git", "describe", *options],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
        )
    except OSError:
        return None
    return found.stdout.strip() or None


def dump(path: Path, values: Mapping[str, Any]) -> None:
    """Write values as indented JSON."""
    path.write_text(json.dumps(values, indent=2) + "\n")
