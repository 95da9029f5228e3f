"""The figure of a timeline, ranks by time: phases, waiting and messages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dml.figures import style as figures
from dml.metrics.timeline import (
    Bounds,
    is_call,
    ranks,
    union,
    wait_intervals,
    waiting_seconds,
)
from dml.types import Message, Timeline

PHASE_COLOURS = {"gradient": "#7fc29b", "wire": "#c3d7f0", "update": "#b79ad6"}
OTHER_COLOURS = ("#d9cc85", "#b4bcc0", "#dba9c4", "#9fd0d3")
WAITING_COLOUR = "#ee8866"
MESSAGE_COLOUR = "#1f2d3d"
UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
PIXELS = 4000  # gaps shorter than 1 / PIXELS of the figure's width are not drawn
MAX_DETAILED_RANKS = 16  # with more, bars leave no space for the lines of messages


def draw(path: Path, timeline: Timeline) -> None:
    """Write path.svg and path.png: a row for each rank, a line for each message."""
    rows = len(ranks(timeline))
    begin = min(interval.start for interval in timeline.intervals)
    seconds = max(interval.end for interval in timeline.intervals) - begin
    unit, scale = axis_unit(seconds)
    size = (10, min(1.5 + 0.42 * rows, 9.0))
    # half the height of a bar; bars of adjacent ranks are 1 apart
    half_height = 0.28 if rows <= MAX_DETAILED_RANKS else 0.2
    style = figures.PICTURE | {"axes.spines.left": False, "axes.titlesize": 9}
    with figures.drawing(path, size=size, style=style) as (_, (axes,)):
        for name, colour, by_rank in bar_layers(timeline):
            boxes = [
                (rank, (start - begin) / scale, (end - begin) / scale)
                for rank, bounds in by_rank.items()
                for start, end in union(bounds, seconds / PIXELS)
                if end > start
            ]
            if boxes:
                bars(axes, np.array(boxes), half_height, facecolor=colour, label=name)
        if timeline.messages:
            reach = half_height if rows <= MAX_DETAILED_RANKS else 0.0
            message_lines(axes, message_ends(timeline.messages, begin, scale), reach)
        axes.set_xlim(0, max(seconds / scale, 1e-9))
        axes.set_ylim(max(ranks(timeline)) + 0.6, -0.6)
        if rows <= MAX_DETAILED_RANKS:
            axes.set_yticks(ranks(timeline))
        axes.set(xlabel=unit, ylabel="rank")
        axes.set_title(description(timeline, seconds), loc="left", color="#555555")
        axes.tick_params(axis="y", length=0)
        if axes.get_legend_handles_labels()[0]:
            place = {"bbox_to_anchor": (1, 1), "borderaxespad": 0.2}
            axes.legend(loc="lower right", ncols=8, handlelength=1.4, **place)


def axis_unit(seconds: float) -> tuple[str, float]:
    """Return the largest unit that is at most `seconds`: its name and its seconds."""
    candidates = (unit for unit in UNITS if seconds >= unit[1])
    return next(candidates, UNITS[-1])


def bar_layers(
    timeline: Timeline,
) -> list[tuple[str, str, Mapping[int, Sequence[Bounds]]]]:
    """Return (name, colour, intervals by rank) of bars, in the order of drawing."""
    phases: dict[str, dict[int, list[Bounds]]] = {}
    for interval in timeline.intervals:
        if not is_call(interval):
            # waiting time is drawn over this; the rest of a phase "wait" is wire time
            name = "wire" if interval.name == "wait" else interval.name
            bounds = phases.setdefault(name, {}).setdefault(interval.rank, [])
            bounds.append((interval.start, interval.end))
    names = [name for name in PHASE_COLOURS if name in phases]
    others = [name for name in phases if name not in PHASE_COLOURS]
    colours = PHASE_COLOURS | {
        name: OTHER_COLOURS[i % len(OTHER_COLOURS)] for i, name in enumerate(others)
    }
    drawn = [(name, colours[name], phases[name]) for name in names + others]
    return [*drawn, ("waiting", WAITING_COLOUR, wait_intervals(timeline))]


def bars(axes: Any, boxes: np.ndarray, half_height: float, **style: Any) -> None:
    """Add bars (row, start, end) to the axes as one path, which keeps files small."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    row, start, end = boxes.T
    corners = [
        (start, row - half_height),
        (end, row - half_height),
        (end, row + half_height),
    ]
    corners += [(start, row + half_height), (start, row - half_height)]
    points = np.array(corners).transpose(2, 0, 1).reshape(-1, 2)
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    path = Path(points, codes * len(boxes))
    axes.add_patch(PathPatch(path, edgecolor="none", **style))


def message_ends(messages: Sequence[Message], begin: float, scale: float) -> np.ndarray:
    """Return rows of (source, sent, dest, received), in units of the axes."""
    ends_Mx4 = np.array([(f.source, f.sent, f.dest, f.received) for f in messages])
    ends_Mx4[:, 1::2] = (ends_Mx4[:, 1::2] - begin) / scale
    return ends_Mx4


def message_lines(axes: Any, messages: np.ndarray, reach: float) -> None:
    """Add a line for each message, from bar to bar; many lines are drawn fainter."""
    source, sent, dest, received = messages.T
    offset = reach * np.sign(dest - source)
    gap = np.full(len(messages), np.nan)  # NaN ends a line
    xs = np.stack([sent, received, gap], axis=1).ravel()
    ys = np.stack([source + offset, dest - offset, gap], axis=1).ravel()
    visibility = min(1.0, (100 / len(messages)) ** 0.25)
    axes.plot(
        xs,
        ys,
        color=MESSAGE_COLOUR,
        linewidth=0.2 + 0.8 * visibility,
        alpha=0.1 + 0.8 * visibility,
        label="message",
        solid_capstyle="butt",
    )


def description(timeline: Timeline, seconds: float) -> str:
    """Return ranks, messages, bytes and waiting time of a timeline as text."""
    waited = waiting_seconds(timeline)
    share = sum(waited.values()) / (len(waited) * seconds) if seconds else 0.0
    nbytes = sum(message.nbytes for message in timeline.messages)
    return (
        f"{len(waited)} ranks · {len(timeline.messages):,} messages · "
        f"{nbytes / 1e3:,.0f} kB · {share:.1%} of the time waiting"
    )
