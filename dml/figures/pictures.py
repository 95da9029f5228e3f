"""The figure of an image classifier: examples and the confusion matrix."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dml.figures import style as figures

COLUMNS, LINES = 6, 4
WRONG = 16  # largest number of wrongly classified images, if others exist
SIDE = 40  # largest side of an image in pixels
CORRECT_COLOUR, WRONG_COLOUR, FAINT = "#3b6ea5", "#cc3311", "#777777"
TALL = 1.28  # height over width of a cell, with the text below the image
NUMBERED = 12  # largest number of classes for which the matrix shows numbers


def draw(
    path: Path,
    images_BxHxWxC: np.ndarray,
    classes: np.ndarray,
    scores_BxC: np.ndarray,
    names: Sequence[str] = (),
) -> None:
    """Write path.svg and path.png.

    Args:
      path: Path of the figure, without suffix.
      images_BxHxWxC: Held-out images.
      classes: True class of each image.
      scores_BxC: Logits.
      names: Names of the classes; by default their numbers.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    classes, scores_BxC = np.asarray(classes), np.asarray(scores_BxC, np.float64)
    count = scores_BxC.shape[1]
    names = [figures.legible(str(name)) for name in names or range(count)]
    chances_BxC = softmax(scores_BxC)
    shown = chosen(classes, chances_BxC)
    ink = pixels(images_BxHxWxC, shown)
    layout = ConstrainedLayoutEngine(rect=(0.005, 0.02, 0.99, 0.96))
    guesses = chances_BxC.argmax(axis=1)
    hits = int((guesses == classes).sum())
    title = (
        f"{hits:,} of {len(classes):,} correct ({hits / len(classes):.1%}); "
        "most confident errors first, then least confident hits"
    )
    style = figures.PICTURE | {"axes.spines.top": True, "axes.spines.right": True}
    look: dict[str, Any] = {"style": style, "layout": layout, "size": (12, 5.9)}
    drawing = figures.drawing(path, 1, 2, width_ratios=(1.2, 1), **look)
    with drawing as (_, (left, right)):
        for place, example in enumerate(shown):
            guess = guesses[example]
            chance = chances_BxC[example, guess]
            truth = names[classes[example]]
            mark(left, place, ink[place], truth, names[guess], chance)
        left.set(xlim=(-0.1, COLUMNS + 0.02), ylim=(LINES, -0.12), aspect=TALL)
        left.set_axis_off()
        left.set_anchor("NW")
        left.set_title(title, loc="left", fontsize=9, color="#555555")
        matrix(right, confusion(classes, guesses, count), names)


def softmax(scores_BxC: np.ndarray) -> np.ndarray:
    """Return the softmax of logits over the last axis."""
    odds_BxC = np.exp(scores_BxC - scores_BxC.max(axis=-1, keepdims=True))
    return odds_BxC / odds_BxC.sum(axis=-1, keepdims=True)


def chosen(classes: np.ndarray, chances_BxC: np.ndarray) -> np.ndarray:
    """Return the examples to show.

    The most confident errors come first, then the least confident correct examples.
    """
    confidence = chances_BxC.max(axis=1)
    wrong = chances_BxC.argmax(axis=1) != classes
    order = np.argsort(np.where(wrong, -confidence, confidence), kind="stable")
    failures, others = order[wrong[order]], order[~wrong[order]]
    count = COLUMNS * LINES
    most = max(WRONG, count - len(others))
    return np.concatenate([failures[:most], others])[:count]


def confusion(classes: np.ndarray, guesses: np.ndarray, count: int) -> np.ndarray:
    """Return the confusion matrix: true classes by guessed classes."""
    counts_CxC = np.zeros((count, count), int)
    np.add.at(counts_CxC, (classes, guesses), 1)
    return counts_CxC


def pixels(images_BxHxWxC: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return the selected images, reduced, for imshow; grey images are inverted."""
    chosen_BxHxWxC = np.asarray(images_BxHxWxC[index], np.float64)
    high, wide, colours = chosen_BxHxWxC.shape[1:]
    block = -(-max(high, wide) // SIDE)
    if block > 1:
        high, wide = high // block, wide // block
        chosen_BxHxWxC = chosen_BxHxWxC[:, : high * block, : wide * block].reshape(
            -1, high, block, wide, block, colours
        )
        chosen_BxHxWxC = chosen_BxHxWxC.mean(axis=(2, 4))
    low, top = min(0.0, chosen_BxHxWxC.min()), max(1.0, chosen_BxHxWxC.max())
    shades_BxHxWxC = (chosen_BxHxWxC - low) / (top - low)
    if colours == 1:
        shades_BxHxWxC = np.repeat(1 - shades_BxHxWxC, 3, axis=3)
    return np.rint(255 * shades_BxHxWxC[..., :3]).astype(np.uint8)


def mark(
    axes: Any, place: int, image: np.ndarray, truth: str, guess: str, chance: float
) -> None:
    """Draw an image with its guessed class and probability.

    The true class is added if it differs. A cell is 1 by 1 in units of the axes.

    Args:
      axes: The axes.
      place: Number of the cell, row by row.
      image: Pixels for imshow.
      truth: Name of the true class.
      guess: Name of the guessed class.
      chance: Probability of the guessed class.
    """
    from matplotlib.patches import Rectangle

    x, y, edge = place % COLUMNS, place // COLUMNS, 0.66
    colour = CORRECT_COLOUR if guess == truth else WRONG_COLOUR
    wide = edge * TALL
    box = (x, x + wide, y + edge, y)
    # unclipped, for equal bytes: a clip path is named by its address in memory
    axes.imshow(image, extent=box, interpolation="none", aspect="auto", clip_on=False)
    axes.add_patch(
        Rectangle((x, y), wide, edge, fill=False, edgecolor=colour, linewidth=1.4)
    )
    text_style = {"fontsize": 8, "va": "top", "parse_math": False}
    axes.text(x, y + edge + 0.03, guess, color=colour, weight="bold", **text_style)
    axes.text(
        x + wide,
        y + edge + 0.03,
        f"{chance:.0%}",
        color=colour,
        ha="right",
        **text_style,
    )
    if guess != truth:
        axes.text(x, y + edge + 0.16, f"is {truth}", color=FAINT, **text_style)


def matrix(axes: Any, counts_CxC: np.ndarray, names: Sequence[str]) -> None:
    """Draw the confusion matrix as shares of each row, the diagonal in blue."""
    from matplotlib.colors import to_rgb

    count = len(names)
    shares_CxC = counts_CxC / np.maximum(counts_CxC.sum(axis=1, keepdims=True), 1)
    hue_CxCx3 = np.full((count, count, 3), to_rgb(WRONG_COLOUR))
    hue_CxCx3[np.eye(count, dtype=bool)] = to_rgb(CORRECT_COLOUR)
    # the square root makes rare errors visible
    depth_CxC = np.where(np.eye(count, dtype=bool), 0.75, 1.0) * np.sqrt(shares_CxC)
    axes.imshow(
        1 - depth_CxC[..., None] * (1 - hue_CxCx3),
        interpolation="none",
        aspect="equal",
        clip_on=False,
    )
    axes.set(xlabel="guessed", ylabel="true")
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_color("#cccccc")
    if count > NUMBERED:
        return
    long = max(map(len, names)) > 3
    axes.set_xticks(range(count), names, parse_math=False, rotation=45 if long else 0)
    axes.set_yticks(range(count), names, parse_math=False)
    for row, column in zip(*np.nonzero(counts_CxC), strict=True):
        axes.text(
            column,
            row,
            f"{counts_CxC[row, column]}",
            ha="center",
            va="center",
            fontsize=8,
            color="white" if depth_CxC[row, column] > 0.6 else "#333333",
        )
