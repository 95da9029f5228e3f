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
    "weight gradient": ("#e8d9a8", "#cdb869", "#b39b43", "#937d2c"),
}
BUBBLE_COLOUR, TEXT_COLOUR = "#f7ddd3", "#1f2d3d"
AXES_INCHES = 9.2  # width of the axes
DIGIT_INCHES = 0.075  # width of a digit
GAP_INCHES = 0.012  # between two boxes


class DrawableSchedule(Protocol):
    """A schedule: arrays of shape (ticks, stages), -1 if the stage is idle.

    A stage has `rounds` parts. A tick is the time of the forward pass of one part.
    """

    @property
    def rounds(self) -> int: ...
    @property
    def piece(self) -> np.ndarray: ...  # 0: forward pass; 1, 2, …: backward pass
    @property
    def microbatch(self) -> np.ndarray: ...
    @property
    def round(self) -> np.ndarray: ...  # index of the part
    @property
    def split(self) -> bool: ...  # whether pieces 1, 2 are input and weight gradients


def lines(schedule: DrawableSchedule, width: int = WIDTH) -> list[str]:
    """Return a line per stage: its microbatch in each tick, or a dot if it is idle.

    If a line exceeds `width` columns, ticks in the middle are omitted.
    """
    ticks, stages = schedule.piece.shape
    digits = len(str(max(0, schedule.microbatch.max(initial=0))))
    names = [f"stage {stage:<{len(str(stages - 1))}} " for stage in range(stages)]
    max_ticks = max(3, (width - len(names[0])) // (digits + 1))
    shown = schedule.microbatch.astype(object)
    shown[schedule.piece < 0] = "."
    if ticks > max_ticks:
        begin, end = shown[: (max_ticks - 1) // 2], shown[ticks - max_ticks // 2 :]
        gap = np.full((1, stages), "…", object)
        shown = np.concatenate([begin, gap, end])
    return [
        name + "".join(f" {cell!s:>{digits}}" for cell in column)
        for name, column in zip(names, shown.T, strict=True)
    ]


def draw(path: Path, schedules: Mapping[str, DrawableSchedule]) -> None:
    """Write path.svg and path.png: a panel for each schedule, by title."""
    stages = max(schedule.piece.shape[1] for schedule in schedules.values())
    time = max(len(schedule.piece) / schedule.rounds for schedule in schedules.values())
    panel, count = 0.55 + min(0.28 * stages, 4.0), len(schedules)
    style = figures.PICTURE | {"axes.spines.left": False, "axes.titlesize": 9}
    size = (10, 0.5 + panel * count)
    drawing = figures.drawing(path, count, 1, size=size, style=style, sharex=True)
    with drawing as (figure, panels):
        for axes, (title, schedule) in zip(panels, schedules.items(), strict=True):
            add_schedule(axes, schedule, AXES_INCHES / time)
            axes.set_title(title, loc="left", color="#555555")
            axes.set(ylabel="stage")
            axes.tick_params(axis="y", length=0)
        panels[-1].set(xlabel="time in forward passes of a stage", xlim=(0, time))
        figures.legend(figure, "upper right", ncols=3)


def add_schedule(axes: Any, schedule: DrawableSchedule, inches: float) -> None:
    """Add the boxes of a schedule to a panel.

    Args:
      axes: The panel.
      schedule: The schedule.
      inches: Width of the forward pass of a stage.
    """
    ticks, stages = schedule.piece.shape
    # half the height of a box; boxes of adjacent stages are 1 apart
    half_height = 0.42 if stages <= MAX_DETAILED_RANKS else 0.5
    scale = np.array([1, 1 / schedule.rounds, 1 / schedule.rounds])
    rows = [(stage, 0, ticks / schedule.rounds) for stage in range(stages)]
    bars(axes, np.array(rows), half_height, facecolor=BUBBLE_COLOUR, label="bubble")
    rows_of_boxes = boxes(schedule)
    gap = np.array([0, 0, GAP_INCHES / inches if GAP_INCHES / inches < 0.1 else 0.0])
    rounds = rows_of_boxes[:, 4]
    for direction, (name, shades) in enumerate(COLOURS.items()):
        for round_index in np.unique(rounds):
            selected = rows_of_boxes[
                (rows_of_boxes[:, 5] == direction) & (rounds == round_index)
            ]
            if not len(selected):
                continue
            bars(
                axes,
                selected[:, :3] * scale - gap,
                half_height - 0.02,
                facecolor=shades[round_index % len(shades)],
                label=name if round_index == 0 else "_",
            )
    if stages <= MAX_DETAILED_RANKS:
        for (stage, begin, end), microbatch in zip(
            rows_of_boxes[:, :3] * scale, rows_of_boxes[:, 3], strict=True
        ):
            if (end - begin) * inches > DIGIT_INCHES * len(str(microbatch)) + 0.02:
                axes.text(
                    (begin + end) / 2,
                    stage,
                    str(microbatch),
                    ha="center",
                    va="center",
                    fontsize=7,
                    color=TEXT_COLOUR,
                )
        axes.set_yticks(range(stages))
    axes.set_ylim(stages - 0.4, -0.6)


def boxes(schedule: DrawableSchedule) -> np.ndarray:
    """Return rows of (stage, begin, end, microbatch, round, index in COLOURS).

    Consecutive pieces of a backward pass are one box. If it is split, input gradients
    (1) and weight gradients (2) are separate boxes.
    """
    piece = schedule.piece.astype(int)
    direction = piece if schedule.split else np.sign(piece)
    keys = np.stack([schedule.microbatch, schedule.round, direction])
    rows = []
    for stage in range(direction.shape[1]):
        key = keys[:, :, stage]
        changes = np.flatnonzero((key[:, 1:] != key[:, :-1]).any(axis=0)) + 1
        begin = np.concatenate([[0], changes])
        end = np.concatenate([changes, [key.shape[1]]])
        row = np.stack([np.full_like(begin, stage), begin, end, *key[:, begin]])
        rows.append(row[:, key[2, begin] >= 0])
    return np.concatenate(rows, axis=1).T
