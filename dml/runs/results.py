"""Read run folders: their flags, rows and summaries."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from dml.types import BadInput


class Run(NamedTuple):
    """The files of a run folder; the summary of an unfinished run is empty."""

    path: Path
    flags: dict[str, Any]
    config: dict[str, Any]
    summary: dict[str, Any]
    rows: list[dict[str, Any]]


def found(paths: Iterable[Path]) -> list[Path]:
    """Return all run folders at or under the paths, sorted.

    Raises BadInput for a path without run folders.
    """
    folders: set[Path] = set()
    for path in paths:
        below = {config.parent for config in path.rglob("config.json")}
        if not below:
            raise BadInput(
                f"expected a run folder, with its config.json, at or under {path}, got "
                f"{'none' if path.exists() else 'no such folder'}; pass another path"
            )
        folders |= below
    return sorted(folders)


def read(path: Path) -> Run:
    """Read a run folder; files other than config.json may be missing."""
    config = parsed(path / "config.json")
    summary, rows = path / "summary.json", path / "metrics.jsonl"
    return Run(
        path,
        mapping(config.get("flags"), path / "config.json"),
        config,
        parsed(summary) if summary.exists() else {},
        lines(rows) if rows.exists() else [],
    )


def parsed(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file."""
    return mapping(load(text(path), path), path)


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, without an incomplete last line."""
    complete, _, _ = text(path).rpartition("\n")
    return [mapping(load(line, path), path) for line in complete.splitlines()]


def text(path: Path) -> str:
    """Return the text of a file of a run; raise BadInput if it cannot be read."""
    try:
        if path.is_fifo():
            raise OSError("a pipe, which might never end")
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"expected to read {path}, got {error}; fix or delete {path.parent}"
        ) from error


def load(line: str, path: Path) -> Any:
    """Parse JSON; `path` is for the error message."""
    try:
        return json.loads(line)
    except ValueError as error:
        raise BadInput(
            f"expected JSON in {path}, got {error}; fix or delete {path.parent}"
        ) from error


def mapping(value: Any, path: Path) -> dict[str, Any]:
    """Return a value that must be a JSON object; `path` is for the error message."""
    if not isinstance(value, dict):
        raise BadInput(
            f"expected names and values in {path}, got {type(value).__name__}; fix or "
            f"delete {path.parent}"
        )
    return value
