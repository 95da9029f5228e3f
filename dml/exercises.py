"""Checks of exercises: the error in a reader's function, in words.

The notebooks of docs/notebooks have exercises whose cells contain `...`. A check calls
the reader's functions and returns the error, or "".
"""

from collections.abc import Callable, Iterable, Mapping
from types import CodeType
from typing import Any

import numpy as np

CORRECT = "Correct."


def verdict(check: Callable[[], str], *answers: Callable[..., Any]) -> str:
    """Return CORRECT, or the error; an exception is a message, too.

    Args:
      check: Returns the error, or "".
      answers: The functions that the reader completes.
    """
    try:
        message = check()
    except Exception as error:  # of the reader's code
        notes = " ".join(getattr(error, "__notes__", ()))
        message = f"{type(error).__name__} {notes}: {error}".replace(" :", ":")
    unfinished = [answer.__name__ for answer in answers if has_blank(answer.__code__)]
    if message and unfinished:
        return f"Not complete: replace each ... in {' and '.join(unfinished)}."
    return message or CORRECT


def compare(
    answer: Callable[..., Any],
    right: Callable[..., Any],
    points: Iterable[tuple[Any, ...]],
    typical: Mapping[str, Callable[..., Any]],
) -> str:
    """Return the error in a formula, or "".

    Args:
      answer: The reader's formula.
      right: The formula.
      points: Arguments at which the formulas are compared.
      typical: Wrong formulas, by what to tell readers who have one of them.
    """
    points = list(points)
    values = [answer(*point) for point in points]
    if equal(values, [right(*point) for point in points]):
        return ""
    for message, formula in typical.items():
        if equal(values, [formula(*point) for point in points]):
            return message
    point, value = next(
        (point, value)
        for point, value in zip(points, values, strict=True)
        if not equal([value], [right(*point)])
    )
    call = f"{answer.__name__}({', '.join(f'{each:g}' for each in point)})"
    return f"Expected {call} = {right(*point):.4g}, got {value:.4g}."


def equal(values: list[Any], others: list[Any]) -> bool:
    """Return whether numbers are equal except for rounding."""
    return bool(np.allclose(values, others, rtol=1e-9, atol=0))


def has_blank(value: Any) -> bool:
    """Return whether code has the constant `...`."""
    if isinstance(value, CodeType):
        value = value.co_consts
    if isinstance(value, tuple):
        return any(map(has_blank, value))
    return value is Ellipsis
