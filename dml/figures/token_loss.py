"""Per-token loss of a language model, in bits, and its figure.

The loss of a token is -log2 of its probability: the length of its optimal code.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dml.figures import style as figures

COLUMNS, LINES = 84, 14  # letters in a line, lines
SIZE = 10  # font size in points
INCH, LINE = 13 / 150, 0.27  # width of a letter in the PNG, height of a line, inches
MAX_BITS = 14.0  # bits with the darkest colour
DEEP = 0.8  # share of the colour map in use: letters are illegible on its dark end
END = "<|endoftext|>"


def bits(scores_LxV: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Return the loss of each token in bits, given its logits."""
    scores_LxV = np.asarray(scores_LxV, np.float64)
    top = scores_LxV.max(axis=1)
    total = top + np.log(np.exp(scores_LxV - top[:, None]).sum(axis=1))
    return (total - scores_LxV[np.arange(len(tokens)), tokens]) / np.log(2)


def words(tokenizer: Any, tokens: Sequence[int]) -> list[str]:
    """Return the text of each token, with the space before it."""
    return [
        tokenizer.decode([int(token)], skip_special_tokens=False) for token in tokens
    ]


def draw(path: Path, words: Sequence[str], bits: Sequence[float]) -> None:
    """Write path.svg and path.png: the text, darker where the loss is higher."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    shown = placed([figures.legible(visible(word)) for word in words])
    lines = 1 + max((line for line, _, _ in shown), default=0)
    size = (INCH * COLUMNS + 0.5, LINE * lines + 0.75)
    figure = Figure(figsize=size, facecolor="white")
    width = INCH * COLUMNS / size[0]
    left, bottom = (1 - width) / 2, 0.15 / size[1]
    axes = figure.add_axes((left, bottom, width, LINE * lines / size[1]))
    axes.set(xlim=(0, COLUMNS), ylim=(lines, 0))
    axes.set_axis_off()
    colours = colormaps["YlOrRd"]
    boxes(axes, shown, [colours(DEEP * min(loss / MAX_BITS, 1.0)) for loss in bits])
    mean = float(np.mean(bits[: len(shown)])) if shown else 0.0
    top = 1 - 0.42 / size[1]
    text = f"{mean:.2f} bits per token · perplexity {2**mean:,.1f}"
    figure.text(left, top, text, fontsize=10, color="#333333", va="bottom")
    legend(figure, (left + 0.66 * width, top, 0.3 * width, 0.14 / size[1]), colours)
    figures.save(figure, path)


def visible(word: str) -> str:
    """Return a word with ¶ for the end of a line or document."""
    word = word.replace(END, "¶").replace("\n", "¶").replace("\t", " ")
    return word or " "


def placed(words: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return the line, column and letters of each word that fits in the figure."""
    line, column, places = 0, 0, []
    for word in words:
        word = word[:COLUMNS]
        if column + len(word) > COLUMNS:
            line, column = line + 1, 0
            word = word.lstrip(" ") or word
        if line == LINES:
            break
        places.append((line, column, word))
        column += len(word)
    return places


def boxes(
    axes: Any, shown: Sequence[tuple[int, int, str]], colours: Sequence[Any]
) -> None:
    """Draw each word on a box of its colour, without the space before it."""
    from matplotlib.patches import Rectangle

    text_style: dict[str, Any] = {"family": "DejaVu Sans Mono", "fontsize": SIZE}
    text_style |= {"ha": "center", "va": "center", "parse_math": False}
    for (line, column, word), colour in zip(shown, colours, strict=False):
        letters = word.lstrip(" ") or word
        column += len(word) - len(letters)
        corner, wide = (column + 0.05, line + 0.08), len(letters) - 0.1
        axes.add_patch(Rectangle(corner, wide, 0.84, facecolor=colour, linewidth=0))
        dark = np.dot(colour[:3], (0.3, 0.6, 0.1)) < 0.45
        ink = "white" if dark else "#222222"
        axes.text(
            column + len(letters) / 2, line + 0.53, letters, color=ink, **text_style
        )


def legend(figure: Any, place: tuple[float, float, float, float], colours: Any) -> None:
    """Draw the scale of colours between its least and greatest number of bits."""
    axes = figure.add_axes(place)
    axes.imshow(
        colours(DEEP * np.linspace(0, 1, 64))[None],
        aspect="auto",
        extent=(0, MAX_BITS, 0, 1),
        interpolation="none",
    )
    axes.set_axis_off()
    text_style: dict[str, Any] = {"va": "center", "fontsize": 9, "color": "#555555"}
    axes.text(-0.3, 0.5, "expected  0", ha="right", **text_style)
    axes.text(MAX_BITS + 0.3, 0.5, f"{MAX_BITS:.0f} bits", ha="left", **text_style)
