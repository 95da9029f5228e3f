"""A strip of pictures of an episode."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dml.figures import style as figures

INCH = 110  # pixels
WIDEST = 14.0  # inches
CAPTION = 0.22  # inches


def draw(
    path: Path, frames_TxHxWx3: np.ndarray, count: int = 8, title: str = ""
) -> None:
    """Write path.svg and path.png: equally spaced frames from the first to the last.

    Args:
      path: Path of the figure, without suffix.
      frames_TxHxWx3: Pictures of all steps in uint8.
      count: Largest number of pictures.
      title: Title of the figure.
    """
    steps = chosen_steps(len(frames_TxHxWx3), count)
    height, width = frames_TxHxWx3.shape[1:3]
    each = min(width / INCH + 0.1, WIDEST / len(steps))
    size = (each * len(steps), each * height / width + CAPTION + 0.25 * bool(title))
    style = figures.PICTURE | {"axes.spines.left": False, "axes.spines.bottom": False}
    with figures.drawing(path, 1, len(steps), size=size, style=style) as (
        figure,
        panels,
    ):
        for axes, step in zip(panels, steps, strict=True):
            axes.imshow(frames_TxHxWx3[step], clip_on=False)
            axes.set(xticks=(), yticks=())
            axes.set_xlabel(f"step {step}", fontsize=8)
        if title:
            figure.suptitle(title, fontsize=9)


def chosen_steps(total: int, count: int) -> Sequence[int]:
    """Return at most `count` equally spaced steps, with the first and the last step."""
    return sorted({round(step) for step in np.linspace(0, total - 1, count)})
