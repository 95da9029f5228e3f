"""Default functions of the contracts, and the error for bad input."""

from typing import Any


def identity(value: Any) -> Any:
    """Return the value unchanged; a default for conversions."""
    return value


def no_op(*arguments: Any) -> None:
    """Do nothing; a default for callbacks."""


class BadInput(ValueError):
    """Bad flags, files or sizes: experiments print one line and exit with code 2."""
