"""Per-token loss of a language model, in bits, and its figure.

The loss of a token is -log2 of its probability.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dml.figures import style as figures

COLUMNS, MAX_LINES = 84, 14  # letters per line, lines per figure
FONT_SIZE = 10  # points
LETTER_INCHES = 13 / 150  # width of a letter in the PNG
LINE_INCHES = 0.27  # height of a line
MAX_BITS = 14.0  # loss with the darkest colour
DARKEST = 0.8  # end of the used part of the colour map; letters need contrast
END = "<|endoftext|>"


def bits(scores_LxV: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Return the loss of each token in bits, given its logits."""
    scores_LxV = np.asarray(scores_LxV, np.float64)
    largest = scores_LxV.max(axis=1)
    total = largest + np.log(np.exp(scores_LxV - largest[:, None]).sum(axis=1))
    return (total - scores_LxV[np.arange(len(tokens)), tokens]) / np.log(2)


def words(tokenizer: Any, tokens: Sequence[int]) -> list[str]:
    """Return the text of each token, including a space before it."""
    return [
        tokenizer.decode([int(token)], skip_special_tokens=False) for token in tokens
    ]


def draw(path: Path, words: Sequence[str], bits: Sequence[float]) -> None:
    """Write path.svg and path.png: the text, darker where the loss is higher."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    placed_words = place_words([figures.legible(printable(word)) for word in words])
    lines = 1 + max((line for line, _, _ in placed_words), default=0)
    size = (LETTER_INCHES * COLUMNS + 0.5, LINE_INCHES * lines + 0.75)
    figure = Figure(figsize=size, facecolor="white")
    width = LETTER_INCHES * COLUMNS / size[0]
    left, bottom = (1 - width) / 2, 0.15 / size[1]
    axes = figure.add_axes((left, bottom, width, LINE_INCHES * lines / size[1]))
    axes.set(xlim=(0, COLUMNS), ylim=(lines, 0))
    axes.set_axis_off()
    colours = colormaps["YlOrRd"]
    draw_words(
        axes,
        placed_words,
        [colours(DARKEST * min(loss / MAX_BITS, 1.0)) for loss in bits],
    )
    mean = float(np.mean(bits[: len(placed_words)])) if placed_words else 0.0
    top = 1 - 0.42 / size[1]
    text = f"{mean:.2f} bits per token · perplexity {2**mean:,.1f}"
    figure.text(left, top, text, fontsize=10, color="#333333", va="bottom")
    draw_scale(figure, (left + 0.66 * width, top, 0.3 * width, 0.14 / size[1]), colours)
    figures.save(figure, path)


def printable(word: str) -> str:
    """Return a word with ¶ for the end of a line or document."""
    word = word.replace(END, "¶").replace("\n", "¶").replace("\t", " ")
    return word or " "


def place_words(words: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return the line, the column and the letters of each word that fits the figure."""
    line, column, places = 0, 0, []
    for word in words:
        word = word[:COLUMNS]
        if column + len(word) > COLUMNS:
            line, column = line + 1, 0
            word = word.lstrip(" ") or word
        if line == MAX_LINES:
            break
        places.append((line, column, word))
        column += len(word)
    return places


def draw_words(
    axes: Any, placed_words: Sequence[tuple[int, int, str]], colours: Sequence[Any]
) -> None:
    """Draw each word on a box of its colour, without the space before it."""
    from matplotlib.patches import Rectangle

    text_style: dict[str, Any] = {"family": "DejaVu Sans Mono", "fontsize": FONT_SIZE}
    text_style |= {"ha": "center", "va": "center", "parse_math": False}
    for (line, column, word), colour in zip(placed_words, colours, strict=False):
        letters = word.lstrip(" ") or word
        column += len(word) - len(letters)
        corner, width = (column + 0.05, line + 0.08), len(letters) - 0.1
        axes.add_patch(Rectangle(corner, width, 0.84, facecolor=colour, linewidth=0))
        is_dark = np.dot(colour[:3], (0.3, 0.6, 0.1)) < 0.45
        text_colour = "white" if is_dark else "#222222"
        axes.text(
            column + len(letters) / 2,
            line + 0.53,
            letters,
            color=text_colour,
            **text_style,
        )


def draw_scale(
    figure: Any, bounds: tuple[float, float, float, float], colours: Any
) -> None:
    """Draw the scale of colours, from 0 to MAX_BITS."""
    axes = figure.add_axes(bounds)
    axes.imshow(
        colours(DARKEST * np.linspace(0, 1, 64))[None],
        aspect="auto",
        extent=(0, MAX_BITS, 0, 1),
        interpolation="none",
    )
    axes.set_axis_off()
    text_style: dict[str, Any] = {"va": "center", "fontsize": 9, "color": "#555555"}
    axes.text(-0.3, 0.5, "loss per token: 0", ha="right", **text_style)
    axes.text(MAX_BITS + 0.3, 0.5, f"{MAX_BITS:.0f} bits", ha="left", **text_style)
