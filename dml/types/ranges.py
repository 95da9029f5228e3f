"""Ranges of the options of a function, stated in its signature, and their check.

    @checked
    def local(problem, *, every: Every, after: Updates = 0, prefetch: Size = 0): ...

    local(problem, every=0)
    BadInput: expected a whole number from 1 to 1000000000 for every of local, got 0; …

The ranges of the fields of a NamedTuple are checked if it is passed as an option.
An option is a keyword-only parameter. Its type is bool, str, or Annotated: a number in
a Range, or a text in OneOf. Parameters of other types are not checked.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from numbers import Integral, Real
from types import UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import numpy as np

from dml.types.defaults import BadInput

SEEDS = 1 << 63  # number of seeds that all random generators accept
MAX_SIZE = 10**6  # largest whole number that determines an allocation
MAX_COUNT = 10**9  # largest whole number that determines no allocation
MAX_NUMBER = 1e38  # largest number; float32 has no larger ones
MAX_THREADS = 1024  # of a rank


class Range(NamedTuple):
    """The numbers from `low` to `high`; NaN is in no range.

    Attributes:
      low: Lowest number.
      high: Highest number.
      above: Whether `low` itself is left out.
    """

    low: float
    high: float
    above: bool = False

    def has(self, value: Any) -> bool:
        """Return whether a number is in the range."""
        inside = self.low <= value <= self.high
        return bool(inside and not (self.above and value == self.low))

    def __str__(self) -> str:
        return f"{'above' if self.above else 'from'} {self.low} to {self.high}"


class OneOf(NamedTuple):
    """The values of a table.

    Attributes:
      values: The values.
    """

    values: tuple[Any, ...]

    def has(self, value: Any) -> bool:
        """Return whether a value is in the table."""
        return value in self.values

    def __str__(self) -> str:
        return f"one of {', '.join(map(str, self.values))}"


Count = Annotated[int, Range(1, MAX_SIZE)]  # number of things
Size = Annotated[int, Range(0, MAX_SIZE)]  # number of things, or 0 for a default
Every = Annotated[int, Range(1, MAX_COUNT)]  # number of updates
Large = Annotated[int, Range(1, MAX_COUNT)]  # number of things that need not exist
Updates = Annotated[int, Range(0, MAX_COUNT)]  # number of updates, or none
Seed = Annotated[int, Range(0, SEEDS - 1)]  # random seed
Threads = Annotated[int, Range(1, MAX_THREADS)]
Fraction = Annotated[float, Range(0, 1)]
PositiveFraction = Annotated[float, Range(0, 1, above=True)]
Positive = Annotated[float, Range(0, MAX_NUMBER, above=True)]  # rates and ratios
Number = Annotated[float, Range(0, MAX_NUMBER)]  # bounds and sizes; 0: none

KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a text",
    object: "a value",  # of a parameter without annotation
}
TYPES = {int: Integral, float: Real, str: str, object: object}

P = ParamSpec("P")
R = TypeVar("R")


class Option(NamedTuple):
    """A parameter that is a number, a truth value or a text.

    Attributes:
      kind: Type: int, float, bool or str; object: any.
      optional: Whether None is a value.
      range: Values of this type; None: all.
    """

    kind: type
    optional: bool = False
    range: Range | OneOf | None = None

    def has(self, value: Any) -> bool:
        """Return whether a value is of the type and in the range."""
        if value is None:
            return self.optional
        truth = isinstance(value, bool | np.bool_)
        if self.kind is bool or (truth and self.kind is not object):
            return self.kind is bool and truth
        return isinstance(value, TYPES[self.kind]) and (
            self.range is None or self.range.has(value)
        )

    def __str__(self) -> str:
        text = KINDS[self.kind]
        if isinstance(self.range, OneOf):
            text = str(self.range)
        elif self.range:
            text = f"{text} {self.range}"
        return f"{text}, or None" if self.optional else text


def option(annotation: Any) -> Option | None:
    """Return the Option of an annotation; None for one of another kind."""
    if annotation is inspect.Parameter.empty:
        return Option(object, optional=True)
    optional, bounds = False, None
    if get_origin(annotation) in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        if len(kinds) > 1:
            return None
        annotation, optional = kinds[0], True
    if get_origin(annotation) is Annotated:
        annotation, *notes = get_args(annotation)
        bounds = next((note for note in notes if isinstance(note, Range | OneOf)), None)
    known = isinstance(annotation, type) and annotation in KINDS
    return Option(annotation, optional, bounds) if known else None


def options(function: Callable[..., Any]) -> dict[str, Option]:
    """Return the options of a function by name, with those that `checked` added."""
    found = getattr(function, "options", None)
    if found is not None:
        return dict(found)
    named = inspect.signature(function).parameters.values()
    kinds = {
        parameter.name: option(parameter.annotation)
        for parameter in named
        if parameter.kind is parameter.KEYWORD_ONLY or isinstance(function, type)
    }
    return {name: kind for name, kind in kinds.items() if kind}


def check(
    function: str, known: Mapping[str, Option], values: Mapping[str, Any]
) -> None:
    """Raise BadInput for an option that is out of its range.

    Args:
      function: Name of the function.
      known: Options by name.
      values: Values by name; others than options are not checked.
    """
    for name, value in values.items():
        if name in known and not known[name].has(value):
            raise BadInput(
                f"expected {known[name]} for {name} of {function}, got "
                f"{value!r:.60}; pass another {name}"
            )
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            fields = options(type(value)).items()
            ranged = {field: kind for field, kind in fields if kind.range}
            check(f"{name} of {function}", ranged, value._asdict())


def checked(
    function: Callable[P, R], own: Callable[..., Any] | None = None, name: str = ""
) -> Callable[P, R]:
    """Return the function with a check of its options at each call.

    A generator function is checked at its call, before the first `next`.

    Args:
      function: Function with options.
      own: Function, or NamedTuple, that receives the options in `**own`.
      name: Name in messages; by default that of the function.
    """
    known = (options(own) if own else {}) | options(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        check(name or function.__name__, known, kwargs)
        return function(*args, **kwargs)

    call.options = known  # type: ignore[attr-defined]
    return call
