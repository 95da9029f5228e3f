"""Operations that do not commute, and sums in a wider type than the buffer's."""

from collections.abc import Callable
from functools import lru_cache
from inspect import signature
from typing import Any

import numpy as np

from dml.types import BadInput, Comm
from dml.wire.collectives.auto import candidates_of, chosen_allreduce

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


@lru_cache(maxsize=64)
def takes_result(function: Callable[..., Any]) -> bool:
    """Return whether an all-reduce has an argument `result`."""
    return "result" in signature(function).parameters


def accumulating(function: Callable[..., Any], dtype: Any) -> Callable[..., None]:
    """Return an all-reduce that adds elements of a wider type.

    The result is rounded once to the type of the buffer, so that the error does not
    grow with the number of ranks. Partial sums take the bytes of the wider type. An
    all-reduce with an argument `result` copies the sums in the type of the buffer.

    Args:
      function: An all-reduce.
      dtype: Type of the terms and of the sum, such as np.float32 for float16.
    """

    def allreduce(comm: Comm, buffer: np.ndarray, *options: Any, **named: Any) -> None:
        wide, call = buffer.astype(dtype), function
        if (among := candidates_of(call)) and comm.size > 1:
            call = among.functions[chosen_allreduce(comm, wide, among)]
        vector = buffer.flags.c_contiguous and buffer.itemsize <= 8
        if vector and takes_result(call):
            call(comm, wide, *options, result=buffer.reshape(-1), **named)
        else:
            call(comm, wide, *options, **named)
            buffer[...] = wide

    return allreduce
