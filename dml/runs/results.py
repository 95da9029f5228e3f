"""Read run folders: their flags, rows and summaries."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from dml.types import BadInput


class Run(NamedTuple):
    """The files of a run folder; a run that has not ended has an empty summary."""

    path: Path
    flags: dict[str, Any]
    config: dict[str, Any]
    summary: dict[str, Any]
    rows: list[dict[str, Any]]


def found(paths: Iterable[Path]) -> list[Path]:
    """Return every run folder at or under the paths, sorted; BadInput without any."""
    folders: set[Path] = set()
    for path in paths:
        below = {config.parent for config in path.rglob("config.json")}
        if not below:
            raise BadInput(
                f"expected a run folder, with its config.json, at or under {path}, got "
                f"{'none' if path.exists() else 'no such folder'}; pass another"
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
    """Return the object of a file of JSON."""
    return mapping(load(text(path), path), path)


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, without a last line that was not finished."""
    finished, _, _ = text(path).rpartition("\n")
    return [mapping(load(line, path), path) for line in finished.splitlines()]


def text(path: Path) -> str:
    try:
        if path.is_fifo():
            raise OSError("a pipe, which might never end")
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"expected to read {path}, got {error}; fix or delete {path.parent}"
        ) from error


def load(line: str, path: Path) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise BadInput(
            f"expected JSON in {path}, got {error}; fix or delete {path.parent}"
        ) from error


def mapping(value: Any, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(
            f"expected names and values in {path}, got {type(value).__name__}; fix or "
            f"delete {path.parent}"
        )
    return value
