"""Write the run folder: config, metrics and summary as JSON."""

import json
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dml import extend
from dml.runs.writers import Row, Writer, jsonl
from dml.types import BadInput

PACKAGES = ("numpy", "jax", "mpi4py")


def path(out: str | None, experiment: str) -> Path:
    """Return `out` as a path; by default, runs/<experiment>/<UTC time>."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%fZ")
    return Path(out) if out else Path("runs", experiment, now)


@contextmanager
def folder(
    path: Path, flags: Mapping[str, Any], append: bool = False, ranks: int = 1
) -> Iterator[Writer]:
    """Create a run folder with config.json; yield the writer of its other files.

    Rows are written to metrics.jsonl, the summary to summary.json.

    Args:
      path: The folder.
      flags: Flags of the run.
      append: Whether to append rows to an existing metrics.jsonl, for a resumed run.
      ranks: Number of ranks.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        # A killed run must not have the summary of an earlier run.
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
    """Return flags, ranks, versions, host and commit, which reproduce a run.

    `own_files` has the hash of each file of FILE.py:NAME.
    """
    return {
        "flags": dict(flags),
        "ranks": ranks,
        "versions": versions(name for name in PACKAGES if name in sys.modules),
        "host": platform.node(),
        "commit": commit(),
        **({"own_files": dict(extend.FILES)} if extend.FILES else {}),
    }


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Return the versions of Python and of packages."""
    return {"python": platform.python_version()} | {k: version(k) for k in packages}


def commit() -> str | None:
    """Return the git commit of this code, "-dirty" if it differs; None without git."""
    options = ["--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        result = subprocess.run(
            ["git", "describe", *options],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
        )
    except OSError:
        return None
    return result.stdout.strip() or None


def dump(path: Path, values: Mapping[str, Any]) -> None:
    """Write values as indented JSON."""
    path.write_text(json.dumps(values, indent=2) + "\n")
