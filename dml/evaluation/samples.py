"""Sample text from a causal language model."""

import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from dml.figures.pictures import softmax
from dml.types import BadInput

END = "<|endoftext|>"
WIDTH = 88


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
    """Return the prompt and `count` tokens after it, drawn one by one.

    Args:
        scores: tokens 1xL -> logits 1xLxV, where L is always `length`: a causal model
            ignores the padding after the text.
        prompt: text; the empty one begins a document.
        temperature: 0 takes the token of the highest probability.
    """
    if length < 1 or temperature < 0:
        raise BadInput(
            f"expected a length of 1 or more and a temperature of 0 or more, got "
            f"{length=} and {temperature=}; pass such ones"
        )
    tokens = tokenizer.encode(prompt, add_special_tokens=False).ids
    tokens = tokens or [tokenizer.token_to_id(END)]
    chance = np.random.default_rng(seed)
    for _ in range(count):
        recent = tokens[-length:]
        window_1xL = np.zeros((1, length), np.int32)
        window_1xL[0, : len(recent)] = recent
        odds = np.asarray(scores(window_1xL)[0, len(recent) - 1], np.float64)
        tokens.append(drawn(odds, temperature, chance.random()))
    return decoded(tokenizer, tokens)


def drawn(odds: np.ndarray, temperature: float, chance: float) -> int:
    """Return the token for a random number of 0 to 1."""
    if not temperature:
        return int(odds.argmax())
    reached = softmax(odds / temperature).cumsum()
    return int(np.searchsorted(reached, chance * reached[-1], side="right"))


def decoded(tokenizer: Any, tokens: list[int]) -> str:
    """Return the text of tokens, with a new line at the end of a document."""
    text: str = tokenizer.decode(tokens, skip_special_tokens=False)
    return text.replace(END, "\n").strip()


def lines(text: str) -> list[str]:
    """Return the lines of a text, wrapped for a terminal."""
    return [line for part in text.splitlines() for line in textwrap.wrap(part, WIDTH)]
