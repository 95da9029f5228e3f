"""Masked-token demo: words that a masked-language model predicts for a gap.

The model was trained on full windows, so a sentence replaces the beginning of windows
of held-out text; the probabilities of its words are means over these windows.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dml.figures import style as figures
from dml.figures.pictures import softmax
from dml.types import BadInput

GAP = "___"
# Common phrases and facts in 106 articles of Wikipedia, the default corpus.
SENTENCES = (
    "the united ___ of america .",
    "for the first ___ in its history .",
    "it is one of the ___ important cities in the world .",
    "the country became independent in the 19th ___ .",
    "he was born in new ___ city .",
    "the soviet ___ collapsed in 1991 .",
    "abraham ___ was the president of the united states .",
    "paris is the ___ of france .",
)
BAR, TEXT, FAINT = "#3b6ea5", "#222222", "#777777"


class Prediction(NamedTuple):
    """A sentence and the words for its gap, in descending order of probability."""

    sentence: str
    words: tuple[str, ...]
    chances: tuple[float, ...]  # probability of each word


def fill(
    tokenizer: Any,
    scores: Callable[[np.ndarray], Any],
    sentences: Sequence[str],
    around_NxL: np.ndarray,
    best: int = 5,
) -> list[Prediction]:
    """Return the most probable words for the gap, ___, of each sentence.

    Args:
      tokenizer: Tokenizer of the model.
      scores: tokens NxL -> logits NxLxV.
      sentences: Sentences with one gap each.
      around_NxL: Windows of held-out text, from [CLS] to [SEP].
      best: Number of words.
    """
    predictions = []
    for sentence in sentences:
        tokens_NxL, position = insert_sentence(
            tokenizer, sentence, np.asarray(around_NxL)
        )
        scores_NxV = np.asarray(scores(tokens_NxL)[:, position], np.float64)
        chances = softmax(scores_NxV).mean(axis=0)
        order = np.argsort(-chances, kind="stable")[:best]
        words = tuple(tokenizer.id_to_token(int(token)) for token in order)
        predictions.append(Prediction(sentence, words, tuple(chances[order].tolist())))
    return predictions


def fits(tokenizer: Any, sentence: str, length: int) -> bool:
    """Return whether a sentence fits in windows of `length` tokens."""
    return len(encode(tokenizer, sentence)[0]) <= length - 2  # without [CLS] and [SEP]


def encode(tokenizer: Any, sentence: str) -> tuple[list[int], int]:
    """Return the tokens of a sentence, and the position of its gap."""
    parts = sentence.split(GAP)
    if len(parts) != 2:
        raise BadInput(
            f"expected a sentence with one {GAP}, got {sentence!r} with "
            f"{len(parts) - 1}; pass a sentence such as {SENTENCES[0]!r}"
        )
    before, after = (
        tokenizer.encode(part, add_special_tokens=False).ids for part in parts
    )
    return [*before, tokenizer.token_to_id("[MASK]"), *after], len(before)


def insert_sentence(
    tokenizer: Any, sentence: str, around_NxL: np.ndarray
) -> tuple[np.ndarray, int]:
    """Return windows that begin with a sentence, and the position of its gap."""
    tokens, gap = encode(tokenizer, sentence)
    length = around_NxL.shape[1]
    if not fits(tokenizer, sentence, length):
        raise BadInput(
            f"expected a sentence of {length - 2} tokens or fewer, got {len(tokens)} "
            f"in {sentence!r}; pass a shorter sentence"
        )
    tokens_NxL = around_NxL.copy()
    tokens_NxL[:, 1 : len(tokens) + 1] = tokens
    return tokens_NxL, gap + 1


def lines(predictions: Sequence[Prediction]) -> list[str]:
    """Return a line for each sentence and its words."""
    width = max((len(prediction.sentence) for prediction in predictions), default=0)
    return [
        f"{prediction.sentence:{width}}   "
        + "  ".join(
            f"{word} {percent(chance)}"
            for word, chance in zip(prediction.words, prediction.chances, strict=True)
        )
        for prediction in predictions
    ]


def percent(chance: float) -> str:
    """Return a probability as a percentage."""
    return f"{chance:.0%}" if chance >= 0.005 else "<1%"


def draw(path: Path, predictions: Sequence[Prediction], columns: int = 2) -> None:
    """Write path.svg and path.png: a panel for each sentence, a bar for each word."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = max(1, -(-len(predictions) // columns))
    size = (5.4 * columns, 1.75 * rows)
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08)
    look: dict[str, Any] = {"layout": layout, "style": figures.PICTURE}
    with figures.drawing(path, rows, columns, size=size, **look) as (_, panels):
        for axes in panels[len(predictions) :]:
            axes.remove()
        for axes, prediction in zip(panels, predictions, strict=False):
            bars(axes, prediction)


def bars(axes: Any, prediction: Prediction) -> None:
    """Draw the words of a sentence, the most probable word on top."""
    rows = range(len(prediction.words))
    colours = [BAR if row == 0 else f"{BAR}66" for row in rows]
    axes.barh(rows, prediction.chances, height=0.72, color=colours)
    text_style: dict[str, Any] = {"va": "center", "fontsize": 9, "parse_math": False}
    for row, word, chance in zip(
        rows, prediction.words, prediction.chances, strict=True
    ):
        weight = "bold" if row == 0 else "normal"
        word = figures.legible(word)
        axes.text(
            -0.015, row, word, ha="right", weight=weight, color=TEXT, **text_style
        )
        axes.text(chance + 0.01, row, percent(chance), color=FAINT, **text_style)
    # space for long words on the left, and for a probability of 1 on the right
    axes.set(xlim=(-0.3, 1.1), ylim=(len(rows) - 0.4, -0.6))
    axes.axvline(0, color="#bbbbbb", linewidth=0.8)
    axes.set_axis_off()
    axes.set_title(
        figures.legible(prediction.sentence),
        loc="left",
        fontsize=10,
        color=TEXT,
        parse_math=False,
    )
