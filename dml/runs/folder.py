"""Write the run folder: config, metrics and summary as JSON.

A folder has one run. Its process locks metrics.jsonl until its end; a lock ends with
its process, on every host of a shared file system. Another run in the folder must be a
resume, or replace the run before it.
"""

import fcntl
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dml import extend
from dml.files import replacing
from dml.runs import results
from dml.runs.results import CONFIG, DONE, FAILED, INTERRUPTED, ROWS, SUMMARY
from dml.runs.rows import jsonl
from dml.runs.writers import Row, Writer
from dml.types import BadInput

PACKAGES = ("numpy", "jax", "mpi4py")
# Files of a run that --overwrite deletes. Rows, figures and vectors are replaced.
FILES = [CONFIG, SUMMARY, "metrics.csv", "recoveries.jsonl", "*.tfevents.*"]
FILES += [f"checkpoints/{name}" for name in ("step-*.npz", "epoch-*.npz")]


def path(out: str | None, experiment: str) -> Path:
    """Return `out` as a path; by default, runs/<experiment>/<UTC time>."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%fZ")
    return Path(out) if out else Path("runs", experiment, now)


@contextmanager
def folder(
    path: Path,
    flags: Mapping[str, Any],
    append: bool = False,
    ranks: int = 1,
    overwrite: bool = False,
) -> Iterator[Writer]:
    """Create a run folder with config.json; yield the writer of its other files.

    Rows are written to metrics.jsonl, the summary to summary.json. The summary has the
    status of the run; see `results.status`.

    Args:
      path: The folder.
      flags: Flags of the run.
      append: Whether to append rows to an existing metrics.jsonl, for a resumed run.
      ranks: Number of ranks.
      overwrite: Whether to delete the files of an earlier run; see FILES.
    """
    with locked(path):
        if not append:
            check_unused(path, overwrite)
            for pattern in FILES:
                for old in path.glob(pattern):
                    old.unlink()
        with jsonl(path / ROWS, append) as rows:
            # a killed run must not have the summary of an earlier run
            (path / SUMMARY).unlink(missing_ok=True)
            dump(path / CONFIG, config(flags, ranks))

            def summary(summary: Row) -> None:
                dump(path / SUMMARY, {"status": DONE} | dict(summary))

            with summarized(path):
                yield Writer(rows.row, summary)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Create and lock a run folder; raise BadInput if another process has locked it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = os.open(path / ROWS, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise BadInput(
            f"expected a folder to write to, got {error}; pass --out=<a new folder>"
        ) from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(
                f"expected one run at a time in {path}, got a second one; wait for the "
                "end of the first, or pass --out=<a new folder>"
            ) from error
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(file)


def check_unused(path: Path, overwrite: bool, resumable: bool = False) -> None:
    """Raise BadInput if a folder has a run.

    Args:
      path: The folder.
      overwrite: Whether the run may be overwritten.
      resumable: Whether the error message names --resume.
    """
    if overwrite or not (path / CONFIG).exists():
        return
    try:
        status = results.folder_status(path)
    except BadInput:
        status = "unreadable"
    resume = f"--resume={path} to continue it, " if resumable else ""
    raise BadInput(
        f"expected a folder without a run in --out, got {path} with a run that is "
        f"{status}; pass {resume}--overwrite to replace it, or another --out"
    )


@contextmanager
def summarized(path: Path) -> Iterator[None]:
    """Write the summary of a run that ends by an error or by Ctrl-C."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        values = {
            "status": FAILED,
            "error": " ".join(str(error).split()) or repr(error),
        }
        if isinstance(error, KeyboardInterrupt):
            values = {"status": INTERRUPTED}
        if not (path / SUMMARY).exists():
            with suppress(BadInput, OSError):
                dump(path / SUMMARY, values)
        raise


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
    with replacing(path) as file:
        file.write(f"{json.dumps(values, indent=2)}\n".encode())
