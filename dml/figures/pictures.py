"""The figure of an image classifier: examples and the confusion matrix."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dml.figures import style as figures

COLUMNS, ROWS = 6, 4  # of example images
MAX_ERRORS = 16  # wrongly classified examples, if enough others exist
MAX_SIDE = 40  # pixels; larger images are reduced
CORRECT_COLOUR, WRONG_COLOUR, TEXT_COLOUR = "#3b6ea5", "#cc3311", "#777777"
ASPECT = 1.28  # height over width of a cell, with the text below the image
MAX_NUMBERED_CLASSES = 12  # for more classes the matrix has colours only


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
    probabilities_BxC = softmax(scores_BxC)
    selection = select_examples(classes, probabilities_BxC)
    images = pixels(images_BxHxWxC, selection)
    layout = ConstrainedLayoutEngine(rect=(0.005, 0.02, 0.99, 0.96))
    predictions = probabilities_BxC.argmax(axis=1)
    correct = int((predictions == classes).sum())
    title = (
        f"{correct:,} of {len(classes):,} correct ({correct / len(classes):.1%}); "
        "most confident errors first, then least confident correct images"
    )
    style = figures.PICTURE | {"axes.spines.top": True, "axes.spines.right": True}
    look: dict[str, Any] = {"style": style, "layout": layout, "size": (12, 5.9)}
    drawing = figures.drawing(path, 1, 2, width_ratios=(1.2, 1), **look)
    with drawing as (_, (left, right)):
        for cell, example in enumerate(selection):
            predicted = predictions[example]
            probability = probabilities_BxC[example, predicted]
            truth = names[classes[example]]
            draw_example(left, cell, images[cell], truth, names[predicted], probability)
        left.set(xlim=(-0.1, COLUMNS + 0.02), ylim=(ROWS, -0.12), aspect=ASPECT)
        left.set_axis_off()
        left.set_anchor("NW")
        left.set_title(title, loc="left", fontsize=9, color="#555555")
        draw_confusion(right, confusion(classes, predictions, count), names)


def softmax(scores_BxC: np.ndarray) -> np.ndarray:
    """Return the softmax of logits over the last axis."""
    odds_BxC = np.exp(scores_BxC - scores_BxC.max(axis=-1, keepdims=True))
    return odds_BxC / odds_BxC.sum(axis=-1, keepdims=True)


def select_examples(classes: np.ndarray, probabilities_BxC: np.ndarray) -> np.ndarray:
    """Return the indices of the examples to show.

    The most confident errors come first, then the least confident correct examples.
    """
    confidence = probabilities_BxC.max(axis=1)
    wrong = probabilities_BxC.argmax(axis=1) != classes
    order = np.argsort(np.where(wrong, -confidence, confidence), kind="stable")
    failures, others = order[wrong[order]], order[~wrong[order]]
    count = COLUMNS * ROWS
    max_errors = max(MAX_ERRORS, count - len(others))
    return np.concatenate([failures[:max_errors], others])[:count]


def confusion(classes: np.ndarray, predictions: np.ndarray, count: int) -> np.ndarray:
    """Return the confusion matrix: true classes by predicted classes."""
    counts_CxC = np.zeros((count, count), int)
    np.add.at(counts_CxC, (classes, predictions), 1)
    return counts_CxC


def pixels(images_BxHxWxC: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return the selected images, reduced, for imshow; grey images are inverted."""
    selected_BxHxWxC = np.asarray(images_BxHxWxC[index], np.float64)
    height, width, colours = selected_BxHxWxC.shape[1:]
    block = -(-max(height, width) // MAX_SIDE)
    if block > 1:
        height, width = height // block, width // block
        selected_BxHxWxC = selected_BxHxWxC[
            :, : height * block, : width * block
        ].reshape(-1, height, block, width, block, colours)
        selected_BxHxWxC = selected_BxHxWxC.mean(axis=(2, 4))
    low, top = min(0.0, selected_BxHxWxC.min()), max(1.0, selected_BxHxWxC.max())
    shades_BxHxWxC = (selected_BxHxWxC - low) / (top - low)
    if colours == 1:
        shades_BxHxWxC = np.repeat(1 - shades_BxHxWxC, 3, axis=3)
    return np.rint(255 * shades_BxHxWxC[..., :3]).astype(np.uint8)


def draw_example(
    axes: Any,
    cell: int,
    image: np.ndarray,
    truth: str,
    predicted: str,
    probability: float,
) -> None:
    """Draw an image with its predicted class and probability.

    The true class is added if it differs. A cell is 1 by 1 in units of the axes.

    Args:
      axes: The axes.
      cell: Index of the cell, row by row.
      image: Pixels for imshow.
      truth: Name of the true class.
      predicted: Name of the predicted class.
      probability: Probability of the predicted class.
    """
    from matplotlib.patches import Rectangle

    x, y, edge = cell % COLUMNS, cell // COLUMNS, 0.66
    colour = CORRECT_COLOUR if predicted == truth else WRONG_COLOUR
    width = edge * ASPECT
    box = (x, x + width, y + edge, y)
    # clip_on=False: SVG files name a clip path by its address, which differs by run
    axes.imshow(image, extent=box, interpolation="none", aspect="auto", clip_on=False)
    axes.add_patch(
        Rectangle((x, y), width, edge, fill=False, edgecolor=colour, linewidth=1.4)
    )
    text_style = {"fontsize": 8, "va": "top", "parse_math": False}
    axes.text(x, y + edge + 0.03, predicted, color=colour, weight="bold", **text_style)
    axes.text(
        x + width,
        y + edge + 0.03,
        f"{probability:.0%}",
        color=colour,
        ha="right",
        **text_style,
    )
    if predicted != truth:
        axes.text(x, y + edge + 0.16, f"true: {truth}", color=TEXT_COLOUR, **text_style)


def draw_confusion(axes: Any, counts_CxC: np.ndarray, names: Sequence[str]) -> None:
    """Draw the confusion matrix; colours are shares of each row."""
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
    axes.set(xlabel="predicted class", ylabel="true class")
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_color("#cccccc")
    if count > MAX_NUMBERED_CLASSES:
        return
    is_long = max(map(len, names)) > 3
    axes.set_xticks(
        range(count), names, parse_math=False, rotation=45 if is_long else 0
    )
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
