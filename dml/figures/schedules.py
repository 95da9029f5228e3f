"""Figures of pipeline schedules, stages by ticks: lines of text, SVG and PNG."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dml.figures import style as figures
from dml.figures.timeline import MAX_DETAILED_RANKS, bars

WIDTH = 100  # columns of a terminal
COLOURS = {  # one shade per round; round 0 has the lightest
    "forward": ("#c3d7f0", "#94b8e2", "#6b98cf", "#4c79b4"),
    "backward": ("#a9d8bc", "#7fc29b", "#58a67b", "#3d885f"),
}
BUBBLE, INK = "#f7ddd3", "#1f2d3d"
INCHES, DIGIT, GAP = 9.2, 0.075, 0.012  # widths of the axes, a digit, a gap of boxes


class Drawn(Protocol):
    """A schedule: arrays ticks x stages, -1 for idle."""

    @property
    def rounds(self) -> int: ...  # parts of a stage; a tick is a forward of a part
    @property
    def piece(self) -> np.ndarray: ...  # 0: forward; 1 or more: piece of a backward
    @property
    def microbatch(self) -> np.ndarray: ...
    @property
    def round(self) -> np.ndarray: ...


def lines(schedule: Drawn, width: int = WIDTH) -> list[str]:
    """Return a line per stage: the microbatch of each tick, or a dot if it is idle.

    If a line exceeds `width`, ticks in the middle are omitted.
    """
    ticks, stages = schedule.piece.shape
    digits = len(str(max(0, schedule.microbatch.max(initial=0))))
    names = [f"stage {stage:<{len(str(stages - 1))}} " for stage in range(stages)]
    fit = max(3, (width - len(names[0])) // (digits + 1))
    shown = schedule.microbatch.astype(object)
    shown[schedule.piece < 0] = "."
    if ticks > fit:
        begin, end = shown[: (fit - 1) // 2], shown[ticks - fit // 2 :]
        gap = np.full((1, stages), "…", object)
        shown = np.concatenate([begin, gap, end])
    return [
        name + "".join(f" {cell!s:>{digits}}" for cell in column)
        for name, column in zip(names, shown.T, strict=True)
    ]


def draw(path: Path, schedules: Mapping[str, Drawn]) -> None:
    """Write path.svg and path.png: a panel for each schedule under its title."""
    stages = max(each.piece.shape[1] for each in schedules.values())
    time = max(len(each.piece) / each.rounds for each in schedules.values())
    panel, count = 0.55 + min(0.28 * stages, 4.0), len(schedules)
    style = figures.PICTURE | {"axes.spines.left": False, "axes.titlesize": 9}
    size = (10, 0.5 + panel * count)
    drawing = figures.drawing(path, count, 1, size=size, style=style, sharex=True)
    with drawing as (figure, every):
        for axes, (title, schedule) in zip(every, schedules.items(), strict=True):
            add(axes, schedule, INCHES / time)
            axes.set_title(title, loc="left", color="#555555")
            axes.set(ylabel="stage")
            axes.tick_params(axis="y", length=0)
        every[-1].set(xlabel="time, in forwards of a stage", xlim=(0, time))
        figures.legend(figure, "upper right", ncols=3)


def add(axes: Any, schedule: Drawn, inches: float) -> None:
    """Add the boxes of a schedule; `inches` is the width of a stage's forward."""
    ticks, stages = schedule.piece.shape
    half = (
        0.42 if stages <= MAX_DETAILED_RANKS else 0.5
    )  # half the height of a box; rows have 1
    scale = np.array([1, 1 / schedule.rounds, 1 / schedule.rounds])
    rows = [(stage, 0, ticks / schedule.rounds) for stage in range(stages)]
    bars(axes, np.array(rows), half, facecolor=BUBBLE, label="bubble")
    rows_of_boxes = boxes(schedule)
    gap = np.array([0, 0, GAP / inches if GAP / inches < 0.1 else 0.0])
    rounds = rows_of_boxes[:, 4]
    for kind, (name, shades) in enumerate(COLOURS.items()):
        for number_of_round in np.unique(rounds):
            selected = rows_of_boxes[
                (rows_of_boxes[:, 5] == kind) & (rounds == number_of_round)
            ]
            bars(
                axes,
                selected[:, :3] * scale - gap,
                half - 0.02,
                facecolor=shades[number_of_round % len(shades)],
                label=name if number_of_round == 0 else "_",
            )
    if stages <= MAX_DETAILED_RANKS:
        for (stage, begin, end), number in zip(
            rows_of_boxes[:, :3] * scale, rows_of_boxes[:, 3], strict=True
        ):
            if (end - begin) * inches > DIGIT * len(str(number)) + 0.02:
                axes.text(
                    (begin + end) / 2,
                    stage,
                    str(number),
                    ha="center",
                    va="center",
                    fontsize=7,
                    color=INK,
                )
        axes.set_yticks(range(stages))
    axes.set_ylim(stages - 0.4, -0.6)


def boxes(schedule: Drawn) -> np.ndarray:
    """Return rows of (stage, begin, end, microbatch, round, 1 if backward).

    Consecutive pieces of a backward are one box.
    """
    kind = np.sign(schedule.piece.astype(int))
    keys = np.stack([schedule.microbatch, schedule.round, kind])
    rows = []
    for stage in range(kind.shape[1]):
        key = keys[:, :, stage]
        new = np.flatnonzero((key[:, 1:] != key[:, :-1]).any(axis=0)) + 1
        begin = np.concatenate([[0], new])
        end = np.concatenate([new, [key.shape[1]]])
        row = np.stack([np.full_like(begin, stage), begin, end, *key[:, begin]])
        rows.append(row[:, key[2, begin] >= 0])
    return np.concatenate(rows, axis=1).T
