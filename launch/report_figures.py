"""The figures of runs as texts inside a page, within its size.

An SVG is compressed (to a tenth of its bytes) and becomes an image when it is first
shown: images run no scripts and fetch nothing.
"""

import base64
import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from report_runs import Told, shown

HUGE = 32_000_000  # bytes of a file that is not read


class Figure(NamedTuple):
    """A file and its text in the page, empty if it is left out."""

    name: str
    svg: bool
    text: str


def figures(runs: Sequence[Told]) -> list[list[Figure]]:
    """Return the figures of every run."""
    return [[figure(path) for path in pictures(each.run.path)] for each in runs]


def without_largest(figures: list[list[Figure]], excess: int) -> list[list[Figure]]:
    """Return figures without the largest texts, which have `excess` bytes or more."""
    found = [list(each) for each in figures]
    places = [(run, at) for run, each in enumerate(found) for at in range(len(each))]
    for run, at in sorted(
        places, key=lambda place: -len(found[place[0]][place[1]].text)
    ):
        if excess <= 0:
            break
        excess -= len(found[run][at].text)
        found[run][at] = found[run][at]._replace(text="")
    return found


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
