"""Loops that Numba compiles at the first call, or that Python runs without Numba.

Numba is slow to import, and `pip install dml-methods` does not install it.
"""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar

Loop = TypeVar("Loop", bound=Callable[..., Any])


def compiled_if_possible(loop: Loop) -> Loop:
    """Return a loop that is compiled at its first call, without compiled callees."""

    @cache
    def compiled() -> Callable[..., Any]:
        try:
            from numba import njit
        except ImportError:  # missing, or not for this NumPy
            return loop
        function: Callable[..., Any] = njit(cache=True)(loop)
        return function

    @wraps(loop)
    def call(*arguments: Any) -> Any:
        return compiled()(*arguments)

    return call  # type: ignore[return-value]
