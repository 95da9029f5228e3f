"""Masked-token demo: tokens that a masked-language model predicts for a gap.

The model was trained on full windows of text, so the sentence with the gap replaces the
beginning of several held-out windows. Probabilities are means over these windows.
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
BAR_COLOUR, TEXT_COLOUR, PERCENT_COLOUR = "#3b6ea5", "#222222", "#777777"


class Prediction(NamedTuple):
    """A sentence and the tokens for its gap, in descending order of probability."""

    sentence: str
    words: tuple[str, ...]  # text of each token
    probabilities: tuple[float, ...]  # of each token


def fill(
    tokenizer: Any,
    scores: Callable[[np.ndarray], Any],
    sentences: Sequence[str],
    windows_NxL: np.ndarray,
    count: int = 5,
) -> list[Prediction]:
    """Return the most probable tokens for the gap, ___, of each sentence.

    Args:
      tokenizer: Tokenizer of the model.
      scores: tokens NxL -> logits NxLxV.
      sentences: Sentences with one gap each.
      windows_NxL: Windows of held-out text, from [CLS] to [SEP].
      count: Number of tokens per sentence.
    """
    predictions = []
    for sentence in sentences:
        tokens_NxL, position = insert_sentence(
            tokenizer, sentence, np.asarray(windows_NxL)
        )
        scores_NxV = np.asarray(scores(tokens_NxL)[:, position], np.float64)
        probabilities = softmax(scores_NxV).mean(axis=0)
        order = np.argsort(-probabilities, kind="stable")[:count]
        words = tuple(tokenizer.id_to_token(int(token)) for token in order)
        predictions.append(
            Prediction(sentence, words, tuple(probabilities[order].tolist()))
        )
    return predictions


def is_short_enough(tokenizer: Any, sentence: str, length: int) -> bool:
    """Return whether a sentence fits in windows of `length` tokens."""
    return len(encode(tokenizer, sentence)[0]) <= length - 2  # without [CLS] and [SEP]


def encode(tokenizer: Any, sentence: str) -> tuple[list[int], int]:
    """Return the tokens of a sentence, with [MASK] for its gap, and its position."""
    parts = sentence.split(GAP)
    if len(parts) != 2:
        raise BadInput(
            f"expected a sentence with one gap, {GAP}, got {sentence!r} with "
            f"{len(parts) - 1} gaps; pass a sentence such as {SENTENCES[0]!r}"
        )
    before, after = (
        tokenizer.encode(part, add_special_tokens=False).ids for part in parts
    )
    return [*before, tokenizer.token_to_id("[MASK]"), *after], len(before)


def insert_sentence(
    tokenizer: Any, sentence: str, windows_NxL: np.ndarray
) -> tuple[np.ndarray, int]:
    """Return windows that begin with a sentence, and the gap's position in them."""
    tokens, gap = encode(tokenizer, sentence)
    length = windows_NxL.shape[1]
    if not is_short_enough(tokenizer, sentence, length):
        raise BadInput(
            f"expected a sentence of at most {length - 2} tokens, got {len(tokens)} "
            f"tokens in {sentence!r}; pass a shorter sentence"
        )
    tokens_NxL = windows_NxL.copy()
    tokens_NxL[:, 1 : len(tokens) + 1] = tokens
    return tokens_NxL, gap + 1


def lines(predictions: Sequence[Prediction]) -> list[str]:
    """Return a line for each sentence with its tokens and their probabilities."""
    width = max((len(prediction.sentence) for prediction in predictions), default=0)
    return [
        f"{prediction.sentence:{width}}   "
        + "  ".join(
            f"{word} {percent(probability)}"
            for word, probability in zip(
                prediction.words, prediction.probabilities, strict=True
            )
        )
        for prediction in predictions
    ]


def percent(probability: float) -> str:
    """Return a probability as a percentage."""
    return f"{probability:.0%}" if probability >= 0.005 else "<1%"


def draw(path: Path, predictions: Sequence[Prediction], columns: int = 2) -> None:
    """Write path.svg and path.png: a panel per sentence, a bar per token."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = max(1, -(-len(predictions) // columns))
    size = (5.4 * columns, 1.75 * rows)
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08)
    with figures.drawing(
        path, rows, columns, size=size, layout=layout, style=figures.PICTURE
    ) as (_, panels):
        for axes in panels[len(predictions) :]:
            axes.remove()
        for axes, prediction in zip(panels, predictions, strict=False):
            bars(axes, prediction)


def bars(axes: Any, prediction: Prediction) -> None:
    """Draw the tokens for the gap of a sentence, the most probable at the top."""
    rows = range(len(prediction.words))
    colours = [BAR_COLOUR if row == 0 else f"{BAR_COLOUR}66" for row in rows]
    axes.barh(rows, prediction.probabilities, height=0.72, color=colours)
    text_style: dict[str, Any] = {"va": "center", "fontsize": 9, "parse_math": False}
    for row, word, probability in zip(
        rows, prediction.words, prediction.probabilities, strict=True
    ):
        weight = "bold" if row == 0 else "normal"
        word = figures.legible(word)
        axes.text(
            -0.015,
            row,
            word,
            ha="right",
            weight=weight,
            color=TEXT_COLOUR,
            **text_style,
        )
        axes.text(
            probability + 0.01,
            row,
            percent(probability),
            color=PERCENT_COLOUR,
            **text_style,
        )
    # space for long words on the left, and for a probability of 1 on the right
    axes.set(xlim=(-0.3, 1.1), ylim=(len(rows) - 0.4, -0.6))
    axes.axvline(0, color="#bbbbbb", linewidth=0.8)
    axes.set_axis_off()
    axes.set_title(
        figures.legible(prediction.sentence),
        loc="left",
        fontsize=10,
        color=TEXT_COLOUR,
        parse_math=False,
    )
