"""Arguments of a strategy, by the names of its parameters.

A command offers values of parameters; a strategy receives those that its signature has.
--options sets the others.
"""

import ast
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from dml.strategies import load
from dml.types import BadInput, ranges

COMMON = ("comm", "timer", "state", "memory", "report")  # set by the command


def parse(
    text: str, strategy: str, known: Mapping[str, ranges.Option]
) -> dict[str, Any]:
    """Return the options of `name=value,name=value`.

    Args:
      text: Value of --options.
      strategy: Name of the strategy, for messages.
      known: Options of its function, by name.
    """
    options: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or name not in known or name in options:
            pairs = [f"{name}=VALUE" for name in known]
            raise BadInput(
                f"expected options {', '.join(pairs) or '(none)'}, each once, with "
                f"--strategy={strategy}, got {part!r:.60}; correct --options"
            )
        options[name] = literal(value)
        if known[name].kind is str and not isinstance(options[name], str):
            options[name] = value
    ranges.check(f"--strategy={strategy}", known, options)
    return options


def literal(text: str) -> Any:
    """Return a number, True, False or None of Python's syntax, else the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def settable(function: Callable[..., Any]) -> dict[str, ranges.Option]:
    """Return the options of a function that --options sets."""
    known = ranges.options(function)
    named = inspect.signature(function).parameters
    return {name: known[name] for name in named if name in known and name not in COMMON}


def complete(
    strategy: str,
    function: Callable[..., Any],
    offered: Mapping[str, Callable[[], Any]],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the options, with offered values of parameters without a default.

    Args:
      strategy: Name of the strategy, for messages.
      function: The strategy.
      offered: () -> value, by the name of the parameter.
      options: Options of the flags.
    """
    own = dict(options)
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not parameter.KEYWORD_ONLY or name in (*COMMON, *own):
            continue
        if parameter.default is parameter.empty and name not in offered:
            raise BadInput(
                f"expected a value of {name} for --strategy={strategy}, got none; pass "
                f"--options={name}=VALUE"
            )
        if parameter.default is parameter.empty:
            own[name] = offered[name]()
    return own


def readers(names: Iterable[str], parameters: Collection[str]) -> list[str]:
    """Return those strategies that have one of the parameters."""
    return [name for name in names if takes(load(name), parameters)]


def takes(function: Callable[..., Any], parameters: Collection[str]) -> bool:
    """Return whether a function has one of the parameters."""
    return not inspect.signature(function).parameters.keys().isdisjoint(parameters)
