"""Figures of runs, encoded as text in a page of limited size.

An SVG is compressed to about a tenth and decoded to an image when first shown. Images
cannot run scripts or make requests.
"""

import base64
import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from report_runs import ListedRun, shown

HUGE = 32_000_000  # bytes; larger files are skipped


class Figure(NamedTuple):
    """A file of a figure."""

    name: str
    svg: bool  # whether the file is an SVG, not a PNG
    text: str  # encoded content; "" if omitted


def figures(runs: Sequence[ListedRun]) -> list[list[Figure]]:
    """Return the figures of every run."""
    return [[figure(path) for path in pictures(each.run.path)] for each in runs]


def without_largest(figures: list[list[Figure]], excess: int) -> list[list[Figure]]:
    """Return figures without the largest texts, to save at least `excess` bytes."""
    remaining = [list(each) for each in figures]
    indices = [
        (run, number)
        for run, each in enumerate(remaining)
        for number in range(len(each))
    ]
    for run, number in sorted(
        indices, key=lambda pair: -len(remaining[pair[0]][pair[1]].text)
    ):
        if excess <= 0:
            break
        excess -= len(remaining[run][number].text)
        remaining[run][number] = remaining[run][number]._replace(text="")
    return remaining


def pictures(folder: Path) -> Iterable[Path]:
    """Return the figures of a folder by name, each as SVG if it exists, else as PNG."""
    drawn = sorted(folder.glob("*.svg"))
    stems = {path.stem for path in drawn}
    return drawn + [
        path for path in sorted(folder.glob("*.png")) if path.stem not in stems
    ]


def figure(path: Path) -> Figure:
    """Read and encode a figure; the text of an unreadable file is empty."""
    svg = path.suffix == ".svg"
    try:
        # reading a named pipe would block
        readable = path.is_file() and path.stat().st_size <= HUGE
        data = path.read_bytes() if readable else b""
    except OSError:
        data = b""
    if svg and data:
        data = gzip.compress(data, 9, mtime=0)
    return Figure(shown(path.name), svg, base64.b64encode(data).decode())
