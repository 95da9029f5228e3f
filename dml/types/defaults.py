"""Default functions of the contracts, and the error for bad input."""

from typing import Any


def itself(value: Any) -> Any:
    """Return the value: the default of calls that change nothing."""
    return value


def nothing(*arguments: Any) -> None:
    """Do nothing: the default of calls without a task."""


class BadInput(ValueError):
    """Bad flags, files or sizes: experiments print one line and exit with code 2."""
