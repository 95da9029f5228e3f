"""Figures of runs, encoded as text in a page of limited size.

An SVG is compressed to about a tenth and decoded to an image when first shown. Images
cannot run scripts or make requests.
"""

import base64
import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from dml.runs.listing import ListedRun, path_text

MAX_BYTES = 32_000_000  # larger files are left out


class Figure(NamedTuple):
    """A file of a figure."""

    name: str
    svg: bool  # whether the file is an SVG, not a PNG
    text: str  # encoded content; "" if omitted


def figures(runs: Sequence[ListedRun]) -> list[list[Figure]]:
    """Return the figures of every run."""
    return [
        [encode_figure(path) for path in figure_files(run.results.path)] for run in runs
    ]


def without_largest(figures: list[list[Figure]], excess: int) -> list[list[Figure]]:
    """Return figures without the largest texts, to save at least `excess` bytes."""
    remaining = [list(run_figures) for run_figures in figures]
    lengths = [
        (len(figure.text), run, index)
        for run, run_figures in enumerate(remaining)
        for index, figure in enumerate(run_figures)
    ]
    for length, run, index in sorted(lengths, key=lambda entry: -entry[0]):
        if excess <= 0:
            break
        excess -= length
        remaining[run][index] = remaining[run][index]._replace(text="")
    return remaining


def figure_files(folder: Path) -> Iterable[Path]:
    """Return the files of the figures of a folder; a PNG only if there is no SVG."""
    svgs = sorted(folder.glob("*.svg"))
    stems = {path.stem for path in svgs}
    return svgs + [
        path for path in sorted(folder.glob("*.png")) if path.stem not in stems
    ]


def encode_figure(path: Path) -> Figure:
    """Read and encode a figure; the text of an unreadable file is empty."""
    svg = path.suffix == ".svg"
    try:
        # reading a named pipe would block
        readable = path.is_file() and path.stat().st_size <= MAX_BYTES
        data = path.read_bytes() if readable else b""
    except OSError:
        data = b""
    if svg and data:
        data = gzip.compress(data, 9, mtime=0)
    return Figure(path_text(path.name), svg, base64.b64encode(data).decode())
