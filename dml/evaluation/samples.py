"""Sample text from a causal language model."""

import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from dml.figures.pictures import softmax
from dml.types import BadInput

END = "<|endoftext|>"
WIDTH = 88  # columns of printed text


def continuation(
    tokenizer: Any,
    scores: Callable[[np.ndarray], Any],
    prompt: str,
    length: int,
    *,
    count: int = 60,
    seed: int = 0,
    temperature: float = 0.8,
) -> str:
    """Return the text of the prompt and `count` sampled tokens.

    Args:
      tokenizer: Tokenizer of the model.
      scores: tokens 1xL -> logits 1xLxV, where L is `length`. Shorter texts are padded
        at the end, which a causal model ignores.
      prompt: Text before the tokens; an empty prompt begins a document.
      length: Length of the model's windows.
      count: Number of tokens to draw.
      seed: Random seed.
      temperature: Divisor of the logits; 0 takes the most probable token.
    """
    if length < 1 or temperature < 0:
        raise BadInput(
            f"expected a length of 1 or more and a temperature of 0 or more, got "
            f"{length=} and {temperature=}; correct the values"
        )
    tokens = tokenizer.encode(prompt, add_special_tokens=False).ids
    tokens = tokens or [tokenizer.token_to_id(END)]
    rng = np.random.default_rng(seed)
    for _ in range(count):
        recent = tokens[-length:]
        window_1xL = np.zeros((1, length), np.int32)
        window_1xL[0, : len(recent)] = recent
        scores_V = np.asarray(scores(window_1xL)[0, len(recent) - 1], np.float64)
        tokens.append(draw_token(scores_V, temperature, rng.random()))
    return decode(tokenizer, tokens)


def draw_token(scores_V: np.ndarray, temperature: float, random: float) -> int:
    """Return the token at quantile `random`, from 0 to 1, of the softmax of scores."""
    if not temperature:
        return int(scores_V.argmax())
    cumulative = softmax(scores_V / temperature).cumsum()
    return int(np.searchsorted(cumulative, random * cumulative[-1], side="right"))


def decode(tokenizer: Any, tokens: list[int]) -> str:
    """Return the text of tokens, with a new line at the end of a document."""
    text: str = tokenizer.decode(tokens, skip_special_tokens=False)
    return text.replace(END, "\n").strip()


def lines(text: str) -> list[str]:
    """Return the lines of a text, wrapped for a terminal."""
    return [line for part in text.splitlines() for line in textwrap.wrap(part, WIDTH)]
