"""A run's figures in; images inside a page out, as many as its size allows.

An SVG is compressed (a tenth of its bytes) and made an image when it is first looked
at: a script in an image never runs, and nothing that it names is fetched.
"""

import base64
import gzip
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from report_runs import Told, shown

HUGE = 32_000_000  # bytes of a file that is not even read


class Figure(NamedTuple):
    """A file, and how it stands in the page; without text where it is left out."""

    name: str
    svg: bool
    text: str


def figures(runs: Sequence[Told], room: int) -> list[list[Figure]]:
    """Return every run's figures; the largest are left out where room is short."""
    found = [[figure(path) for path in pictures(each.run.path)] for each in runs]
    whole = sum(len(each.text) for mine in found for each in mine)
    order = sorted(
        (
            (len(each.text), run, at)
            for run, of in enumerate(found)
            for at, each in enumerate(of)
        ),
        reverse=True,
    )
    for size, run, at in order:
        if whole <= room:
            break
        found[run][at] = found[run][at]._replace(text="")
        whole -= size
    return found


def pictures(folder: Path) -> Iterable[Path]:
    """Return the figures of a folder by name: each as SVG, or as PNG if it has none."""
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


def drawn(figures: Sequence[Figure], run: str) -> str:
    """Return the HTML of one run's figures, its timeline under a heading of its own."""
    lines, timeline = [], "timeline.svg"
    for title, mine in (
        ("Figures", [each for each in figures if each.name != timeline]),
        ("Timeline", [each for each in figures if each.name == timeline]),
    ):
        if mine:
            lines.append(f"<h3>{title}</h3>")
            lines += [image(each, run) for each in mine if each.text]
        lost = ", ".join(escape(each.name) for each in mine if not each.text)
        if lost:
            lines.append(
                f'<p class="note">Left out, to keep the page small: {lost}.</p>'
            )
    return "\n".join(lines)


def image(figure: Figure, run: str) -> str:
    name = escape(figure.name)
    source = (
        f'data-svg="{figure.text}"'
        if figure.svg
        else f'loading="lazy" src="data:image/png;base64,{figure.text}"'
    )
    return (
        f'<figure><img alt="{name} of {escape(run)}" {source}>'
        f"<figcaption>{name}</figcaption></figure>"
    )
