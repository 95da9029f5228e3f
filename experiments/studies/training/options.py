"""Options of a strategy, by the names of its parameters."""

import ast
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from dml.types import BadInput

Parameters = Mapping[str, inspect.Parameter]
COMMON = ("comm", "timer", "state", "memory", "report")  # set by the command


def parse(text: str, strategy: str, parameters: Parameters) -> dict[str, Any]:
    """Return the options of `name=value,name=value`.

    Args:
      text: Value of --options.
      strategy: Name of the strategy, for messages.
      parameters: Parameters of its function.
    """
    options: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or name not in parameters:
            known = [f"{name}=VALUE" for name in parameters]
            raise BadInput(
                f"expected options {', '.join(known) or '(none)'} with "
                f"--strategy={strategy}, got {part!r}; correct --options"
            )
        options[name] = check(name, literal(value), parameters[name].annotation)
    return options


def literal(text: str) -> Any:
    """Return a number, True, False or None of Python's syntax, else the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def check(name: str, value: Any, annotation: Any) -> Any:
    """Return the value of an option; raise BadInput if it is of another type."""
    kind = (int, float) if annotation is float else annotation
    if annotation is not inspect.Parameter.empty and not isinstance(value, kind):
        text = getattr(annotation, "__name__", str(annotation))
        raise BadInput(
            f"expected {name} of type {text} in --options, got {value!r}; correct it"
        )
    return value


def settable(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters that are numbers, texts, or of no declared type."""
    plain = (int, float, bool, str, int | None, float | None, bool | None)
    return {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
        and name not in COMMON
        and parameter.annotation in (*plain, parameter.empty)
    }


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
