"""Timelines of training: some steps of a generator traced, drawn into the run folder.

Ranks are traced where --timeline says so and `flags.ranks` has wrapped them.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from dml.metrics import timeline, timeline_figure
from dml.metrics.timer import Timer
from dml.types import Step

FIRST = 1  # the steps that compile, and so are not drawn
SPANS = 40_000  # drawn at most, over all ranks: JSON of some MB
FEWEST = 16  # spans a rank; so many ranks that each has fewer are not drawn


def timer(comm: Any, clock: Callable[[], float], delay: Any = None) -> Timer:
    """Return a timer whose phases comm notes, where it is traced."""
    return Timer(clock, delay, seen=getattr(comm, "seen", None))


def traced(steps: Iterable[Step], comm: Any, count: int, path: Path) -> Iterator[Step]:
    """Pass steps on; trace so many of them after the first, and draw them at the end.

    Collecting is collective and takes time, so it waits for the last step.
    Writes timeline.json, timeline.svg and timeline.png into path, and says so.
    """
    limit = SPANS // comm.size
    if not hasattr(comm, "seen") or limit < FEWEST:
        yield from steps
        return
    comm.align()
    for number, step in enumerate(steps, 1):
        if number == FIRST + count:
            comm.end()
        yield step
        if number == FIRST:
            comm.begin(limit)
    comm.end()
    found = comm.timeline()
    if found and found.spans:
        timeline.write(path / "timeline", found)
        timeline_figure.draw(path / "timeline", found)
        sys.stdout.write(f"timeline {path / 'timeline.svg'}\n")
