"""LOG: a prompt in, the text with which a causal language model goes on out."""

import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from dml.metrics.pictures import softmax
from dml.types import BadInput

END = "<|endoftext|>"
WIDTH = 88


def going_on(
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

    Scores are log-odds 1xLxV of tokens 1xL, L = length at each call: what is right of
    the text is nothing to a causal model. Temperature 0 takes the likeliest token. An
    empty prompt begins a document.
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
    return said(tokenizer, tokens)


def drawn(odds: np.ndarray, temperature: float, chance: float) -> int:
    """Return the token on which a number of 0 … 1 falls."""
    if not temperature:
        return int(odds.argmax())
    reached = softmax(odds / temperature).cumsum()
    return int(np.searchsorted(reached, chance * reached[-1], side="right"))


def said(tokenizer: Any, tokens: list[int]) -> str:
    """Return the text of tokens; a new line where a document ends."""
    text: str = tokenizer.decode(tokens, skip_special_tokens=False)
    return text.replace(END, "\n").strip()


def lines(text: str) -> list[str]:
    """Break a text into lines that a terminal shows."""
    return [line for part in text.splitlines() for line in textwrap.wrap(part, WIDTH)]
