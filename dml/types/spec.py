"""Calls written as text: NAME, or NAME:ARGUMENT,ARGUMENT, read by a signature.

    def pareto(scale: Number, shape: Number) -> DelayDistribution: ...
    def torus(*side: Count, size: int, rates: Rates) -> Torus: ...

    call("pareto:1,1.5", DISTRIBUTIONS, "a distribution")
    pareto(1.0, 1.5)

    call("torus:4x4", NETWORKS, "a network", size=9, rates=rates)
    torus(4, 4, size=9, rates=rates)

The signature is the grammar. Positional parameters are the arguments of the text, in
their order: their annotations state type and range, as in `dml.types.ranges`, and those
with a default may be left out. Whole numbers are separated by x if all arguments are
whole numbers, and others by commas. The only argument of a function is not divided.
Keyword-only parameters are passed by the caller.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, repeat
from math import inf
from typing import Any, NamedTuple

from dml.types.defaults import BadInput
from dml.types.ranges import Option, option

PATTERNS = {
    int: re.compile(r"-?[0-9]+"),
    float: re.compile(
        r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|nan|[+-]?inf"
    ),
    str: re.compile(r"(?s).+"),
}
MAX_LENGTH = 4096  # characters of an argument; int() refuses numbers that are longer


class Argument(NamedTuple):
    """A positional parameter of a function.

    Attributes:
      name: Name in upper case.
      option: Type and range.
      required: Whether it has no default.
      repeated: Whether it stands for any number of arguments.
    """

    name: str
    option: Option
    required: bool
    repeated: bool


def arguments(function: Callable[..., Any]) -> list[Argument]:
    """Return the arguments that a text has for a function."""
    found = []
    for one in inspect.signature(function).parameters.values():
        if one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD):
            continue
        kind, repeated = option(one.annotation), one.kind is one.VAR_POSITIONAL
        assert kind, f"{function} has a positional parameter {one} of another type"
        required = one.default is one.empty and not repeated
        found.append(Argument(one.name.upper(), kind, required, repeated))
    return found


def separator(known: Sequence[Argument]) -> str:
    """Return the separator of the arguments."""
    whole = all(argument.option.kind is int for argument in known)
    return "x" if whole else ","


def form(name: str, function: Callable[..., Any]) -> str:
    """Return the form of a text, such as slim_fly[:Q[xRANKS]] or torus[:SIDEx...]."""
    known = arguments(function)
    text, between, optional = name, ":", 0
    for argument in known:
        text += "" if argument.required else "["
        text += between + argument.name
        between = separator(known)
        text += f"{between}..." if argument.repeated else ""
        optional += not argument.required
    return text + "]" * optional


def forms(table: Mapping[str, Callable[..., Any]]) -> str:
    """Return the forms of a table."""
    return ", ".join(form(name, function) for name, function in table.items())


def name_of(text: str) -> str:
    """Return the name in a text."""
    return text.partition(":")[0]


def call(
    text: str, table: Mapping[str, Callable[..., Any]], what: str, **others: Any
) -> Any:
    """Return the result of the function that a text names, called with its arguments.

    Args:
      text: NAME, or NAME:ARGUMENT,ARGUMENT.
      table: Functions by name.
      what: Noun for the value, with an article, for messages.
      others: Keyword-only arguments.

    Raises:
      BadInput: The text has no form of the table, or the function raised ValueError.
    """
    name, values = parse(text, table, what)
    with refusing(text, partial(form, name, table[name])):
        return table[name](*values, **others)


def parse(
    text: str, table: Mapping[str, Callable[..., Any]], what: str
) -> tuple[str, list[Any]]:
    """Return the name in a text, and the arguments of its function; see `call`."""
    name, colon, values = text.partition(":")
    if name not in table:
        raise BadInput(
            f"expected {what} of {forms(table)}, got {text!r:.80}; pass one of them"
        )
    with refusing(text, partial(form, name, table[name])):
        return name, read(values if colon else None, arguments(table[name]))


def apply(text: str, function: Callable[..., Any], wanted: str) -> Any:
    """Return the result of a function, called with the arguments of a text.

    Args:
      text: ARGUMENT,ARGUMENT.
      function: The function.
      wanted: Form of the text, for messages.
    """
    with refusing(text, lambda: wanted):
        return function(*read(text, arguments(function)))


@contextmanager
def refusing(text: str, wanted: Callable[[], str]) -> Iterator[None]:
    """Raise BadInput, with the text and its form, for a ValueError.

    Args:
      text: The text.
      wanted: () -> form of the text.
    """
    try:
        yield
    except BadInput:
        raise
    except (ValueError, OverflowError, OSError) as error:
        raise BadInput(
            f"expected {wanted()}, got {text!r:.80}: {error}; correct it"
        ) from error


def read(text: str | None, known: Sequence[Argument]) -> list[Any]:
    """Return the values of arguments; raise ValueError if one is wrong.

    Args:
      text: Values with separators; None: no values.
      known: The arguments.
    """
    least = sum(argument.required for argument in known)
    most = inf if known and known[-1].repeated else len(known)
    parts = [] if text is None else [text]
    if text is not None and most > 1:
        parts = text.split(separator(known))
    if not least <= len(parts) <= most:
        wanted = f"{least} or more" if most == inf else f"{least} to {most}"
        wanted = str(least) if least == most else wanted
        raise ValueError(f"the number of arguments is {len(parts)} instead of {wanted}")
    of_parts = chain(known, repeat(known[-1])) if known else known
    return [value(*pair) for pair in zip(parts, of_parts, strict=False)]


def value(text: str, argument: Argument) -> Any:
    """Return the value of an argument; raise ValueError if it is wrong."""
    kind = argument.option.kind
    if PATTERNS[kind].fullmatch(text) and len(text) < MAX_LENGTH:
        found = kind(text)
        if argument.option.has(found):
            return found
    wanted = str(argument.option).removesuffix(", or None")
    raise ValueError(f"{argument.name} is {text!r:.40} instead of {wanted}")
