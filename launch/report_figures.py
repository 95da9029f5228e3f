"""Figures of runs, encoded as text in a page of limited size.

An SVG is compressed to about a tenth and decoded to an image when first shown; images
run no scripts and make no requests.
"""

import base64
import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from report_runs import ListedRun, shown

HUGE = 32_000_000  # bytes; larger files are skipped


class Figure(NamedTuple):
    """A file name and its encoded content, "" if omitted."""

    name: str
    svg: bool
    text: str


def figures(runs: Sequence[ListedRun]) -> list[list[Figure]]:
    """Return the figures of every run."""
    return [[figure(path) for path in pictures(each.run.path)] for each in runs]


def without_largest(figures: list[list[Figure]], excess: int) -> list[list[Figure]]:
    """Return figures without the largest texts, which have `excess` bytes or more."""
    remaining = [list(each) for each in figures]
    indices = [
        (run, at) for run, each in enumerate(remaining) for at in range(len(each))
    ]
    for run, at in sorted(
        indices, key=lambda place: -len(remaining[place[0]][place[1]].text)
    ):
        if excess <= 0:
            break
        excess -= len(remaining[run][at].text)
        remaining[run][at] = remaining[run][at]._replace(text="")
    return remaining


def pictures(folder: Path) -> Iterable[Path]:
    """Return the figures of a folder by name, each as SVG, or else as PNG."""
    drawn = sorted(folder.glob("*.svg"))
    stems = {path.stem for path in drawn}
    return drawn + [
        path for path in sorted(folder.glob("*.png")) if path.stem not in stems
    ]


def figure(path: Path) -> Figure:
    svg = path.suffix == ".svg"
    try:
        read = path.is_file() and path.stat().st_size <= HUGE  # a pipe would hang
        data = path.read_bytes() if read else b""
    except OSError:
        data = b""
    if svg and data:
        data = gzip.compress(data, 9, mtime=0)
    return Figure(shown(path.name), svg, base64.b64encode(data).decode())
