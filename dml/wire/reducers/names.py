"""Reducers by name: NAME[:ARGUMENT][@TRANSPORT][+feedback].

exact, order_free, order_free:64, qsgd:4, terngrad, natural, int8@ring, sign+feedback,
one_bit@scatter+feedback, vote, one_bit_adam:100, top_k:0.01+feedback, dgc:0.001,
random_k:0.01, power_sgd:2+feedback
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from dml.types import AllReduce, BadInput, Reducer

FEEDBACK = "+feedback"
LOSSLESS = ("exact", "order_free")
CODES = ("qsgd", "terngrad", "natural", "int8", "sign", "one_bit", "top_k")
DIRECTIONS = ("dgc", "one_bit_adam")  # have momentum; the update rule is sgd
TRANSPORTS = ("gather", "scatter", "two_level", "ring")  # of codes; see `transports`


class Argument(NamedTuple):
    """The argument of a reducer.

    Attributes:
      kind: int or float; None: there is no argument.
      default: Its value if it is omitted.
    """

    kind: Callable[[str], float] | None = None
    default: Any = None


REDUCERS: Mapping[str, Argument] = {
    "exact": Argument(),
    "order_free": Argument(int, 32),  # bits of the integers
    "qsgd": Argument(int, 4),  # levels
    "terngrad": Argument(),
    "natural": Argument(),
    "int8": Argument(),
    "sign": Argument(),
    "one_bit": Argument(),
    "vote": Argument(),
    "one_bit_adam": Argument(int, 100),  # updates of the warm-up
    "top_k": Argument(float, 0.01),  # fraction of the elements
    "dgc": Argument(float, 0.001),  # fraction of the elements
    "random_k": Argument(float, 0.01),  # fraction of the elements
    "power_sgd": Argument(int, 2),  # rank
    "power_sgd_alternating": Argument(int, 2),  # rank
}


class Choice(NamedTuple):
    """A reducer that a text names."""

    name: str
    argument: Any
    transport: str  # empty: chosen by predicted seconds
    feedback: bool


def is_name(text: str) -> bool:
    """Return whether a text begins with a name of REDUCERS."""
    code, _, _ = text.removesuffix(FEEDBACK).partition("@")
    return code.partition(":")[0] in REDUCERS


def is_lossy(text: str) -> bool:
    """Return whether a text names a reducer that sends less than the gradient."""
    return is_name(text) and parse(text).name not in LOSSLESS


def has_momentum(text: str) -> bool:
    """Return whether a text names a reducer whose result is an update direction."""
    return is_name(text) and parse(text).name in DIRECTIONS


def parse(text: str) -> Choice:
    """Return the reducer that a text names; raise BadInput if there is none."""
    feedback = text.endswith(FEEDBACK)
    code, at, transport = text.removesuffix(FEEDBACK).partition("@")
    name, colon, value = code.partition(":")
    if name not in REDUCERS:
        raise BadInput(
            f"expected a reducer of {', '.join(REDUCERS)}, got {text!r}; correct it"
        )
    if at and name not in CODES:
        raise BadInput(
            f"expected @{transport} on a reducer of {', '.join(CODES)}, got {text!r}; "
            "leave it out, or pass --allreduce"
        )
    if at and transport not in TRANSPORTS:
        raise BadInput(
            f"expected {code}@ and a transport of {', '.join(TRANSPORTS)}, got "
            f"{text!r}; correct it"
        )
    kind, default = REDUCERS[name]
    if not colon:
        return Choice(name, default, transport, feedback)
    if kind is None:
        raise BadInput(f"expected {name} without an argument, got {text!r}; correct it")
    try:
        return Choice(name, kind(value), transport, feedback)
    except ValueError as error:
        raise BadInput(
            f"expected {name} or {name}:<number>, such as {name}:{default}, got "
            f"{text!r}; correct it"
        ) from error


def reducer(text: str, allreduce: AllReduce) -> Reducer:
    """Return the reducer that a text names.

    Args:
      text: NAME[:ARGUMENT][@TRANSPORT][+feedback].
      allreduce: Sums buffers; a value of `dml.wire.collectives.ALLREDUCE`.
    """
    choice = parse(text)
    # imported at the first use: most reducers need a compiler of kernels
    makers = import_module("dml.wire.reducers.makers").MAKERS
    made: Reducer = makers[choice.name](allreduce, choice)
    return made
