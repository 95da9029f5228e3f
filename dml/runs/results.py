"""Read run folders: their flags, rows and summaries."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dml.types import BadInput

CONFIG, ROWS, SUMMARY = "config.json", "metrics.jsonl", "summary.json"
DONE, INTERRUPTED, FAILED, NOT_ENDED = "done", "interrupted", "failed", "not ended"
MAX_BYTES = 1 << 30  # of a file that is read


class Run(NamedTuple):
    """The contents of a run folder; without summary.json the summary is empty."""

    path: Path
    flags: dict[str, Any]
    config: dict[str, Any]
    summary: dict[str, Any]
    rows: list[dict[str, Any]]


def status(summary: Mapping[str, Any]) -> str:
    """Return the status of a run by its summary.

    It is "done", "interrupted" (by a signal, before all steps), "failed" (by an error),
    or "not ended" without a summary: the run continues, or was killed. Summaries of
    earlier versions have no status; they are those of runs that are done.
    """
    return str(summary.get("status", DONE)) if summary else NOT_ENDED


def folder_status(path: Path) -> str:
    """Return the status of the run in a folder."""
    summary = path / SUMMARY
    return status(read_object(summary) if summary.exists() else {})


def find_folders(paths: Iterable[Path]) -> list[Path]:
    """Return all run folders at or under the paths, sorted.

    Raises BadInput for a path without run folders.
    """
    folders: set[Path] = set()
    for path in paths:
        found = {config.parent for config in path.rglob(CONFIG)}
        if not found:
            raise BadInput(
                f"expected a run folder, with its config.json, at or under {path}, got "
                f"{'none' if path.exists() else 'no such folder'}; pass another path"
            )
        folders |= found
    return sorted(folders)


def read(path: Path, with_rows: bool = True) -> Run:
    """Read a run folder; files other than config.json may be missing."""
    config = read_object(path / CONFIG)
    summary, rows = path / SUMMARY, path / ROWS
    return Run(
        path,
        check_object(config.get("flags"), path / CONFIG),
        config,
        read_object(summary) if summary.exists() else {},
        read_rows(rows) if with_rows and rows.exists() else [],
    )


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file."""
    return check_object(parse_json(read_text(path), path), path)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the JSON object of each line, without an incomplete last line."""
    complete, _, _ = read_text(path).rpartition("\n")
    return [
        check_object(parse_json(line, path), path) for line in complete.splitlines()
    ]


def read_text(path: Path) -> str:
    """Return the text of a file of a run; raise BadInput if it cannot be read.

    Pipes and devices, which might never end, and larger files than MAX_BYTES are not
    read.
    """
    try:
        if path.exists() and not path.is_file():
            raise OSError("a pipe, device or folder")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise OSError(f"more than {MAX_BYTES >> 20} MB")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"expected to read {path}, got {error}; fix or delete {path.parent}"
        ) from error


def parse_json(line: str | bytes, path: Path) -> Any:
    """Parse JSON; `path` is for the error message."""
    try:
        return json.loads(line)
    except ValueError as error:
        raise BadInput(
            f"expected JSON in {path}, got {error}; fix or delete {path.parent}"
        ) from error


def check_object(value: Any, path: Path) -> dict[str, Any]:
    """Return a value that must be a JSON object; `path` is for the error message."""
    if not isinstance(value, dict):
        raise BadInput(
            f"expected names and values in {path}, got {type(value).__name__}; fix or "
            f"delete {path.parent}"
        )
    return value
