"""Operations that do not commute, and sums in a wider type than the buffer's."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from dml.types import BadInput, Comm

SAMPLE = ([1, 5, 2, 7, 3], [3, 2, 9, 7, 4])  # pairs of operands


@lru_cache(maxsize=256)
def commutes(op: np.ufunc, dtype: np.dtype) -> bool:
    """Return whether an operation gives equal results for exchanged sample operands."""
    first, second = (np.array(values).astype(dtype) for values in SAMPLE)
    if dtype.kind in "fc":
        first = -first
    try:
        with np.errstate(all="ignore"):
            there, back = op(first, second), op(second, first)
    except TypeError:  # not defined for the dtype: the all-reduce says so
        return True
    return np.array_equal(there, back)


def check_order(op: np.ufunc, dtype: np.dtype, name: str, ordered: list[str]) -> None:
    """Refuse an all-reduce by name that does not keep the order of operands."""
    if name not in ordered and not commutes(op, dtype):
        raise BadInput(
            f"expected a commutative operation for the all-reduce {name}, got "
            f"{op.__name__}; pass an algorithm in rank order: {', '.join(ordered)}"
        )


def accumulating(function: Callable[..., Any], dtype: Any) -> Callable[..., None]:
    """Return an all-reduce that sends and adds elements of a wider type.

    The result is rounded once to the type of the buffer, so that the error does not
    grow with the number of ranks. An element takes the bytes of the wider type.

    Args:
      function: An all-reduce.
      dtype: Type of the terms and of the sum, such as np.float32 for float16.
    """

    def allreduce(comm: Comm, buffer: np.ndarray, *options: Any, **named: Any) -> None:
        wide = buffer.astype(dtype)
        function(comm, wide, *options, **named)
        buffer[...] = wide

    return allreduce
