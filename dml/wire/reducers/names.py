"""Reducers by name: NAME or NAME:ARGUMENT, such as `order_free:64`."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from dml.types import AllReduce, BadInput, Reducer


class Maker(NamedTuple):
    """A function (allreduce, argument) -> Reducer.

    Attributes:
      module: Module below dml.wire.reducers, imported at the first use.
      function: Name of the function.
      argument: Type of its argument; None: it has none.
      example: Text of an argument, for messages.
    """

    module: str
    function: str
    argument: Callable[[str], Any] | None = None
    example: str = ""


REDUCERS: Mapping[str, Maker] = {
    "exact": Maker("exact", "exact"),
    "order_free": Maker("fixed_point", "order_free", int, "64"),
}


def is_name(text: str) -> bool:
    """Return whether a text begins with a name of REDUCERS."""
    return text.partition(":")[0] in REDUCERS


def parse(text: str) -> tuple[Maker, tuple[Any, ...]]:
    """Return the maker and the arguments that a text names."""
    name, colon, argument = text.partition(":")
    if name not in REDUCERS:
        raise BadInput(
            f"expected a reducer of {', '.join(REDUCERS)}, got {text!r}; correct it"
        )
    maker = REDUCERS[name]
    if not colon:
        return maker, ()
    if maker.argument is None:
        raise BadInput(f"expected {name} without an argument, got {text!r}; correct it")
    try:
        return maker, (maker.argument(argument),)
    except ValueError as error:
        raise BadInput(
            f"expected {name} or {name}:<number>, such as {name}:{maker.example}, got "
            f"{text!r}; correct it"
        ) from error


def reducer(text: str, allreduce: AllReduce) -> Reducer:
    """Return the reducer that a text names.

    Args:
      text: NAME or NAME:ARGUMENT.
      allreduce: Sums buffers; a value of `dml.wire.collectives.ALLREDUCE`.
    """
    maker, arguments = parse(text)
    module = import_module(f"dml.wire.reducers.{maker.module}")
    made: Reducer = getattr(module, maker.function)(allreduce, *arguments)
    return made
