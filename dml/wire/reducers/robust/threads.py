"""Calls on parts of the columns, one after another or on several threads."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

# (call, number of columns, columns of a part) -> the results of call(part), in order
Run = Callable[[Callable[[slice], Any], int, int], Iterator[Any]]


def parts(length: int, step: int) -> list[slice]:
    """Return consecutive slices of `step` columns; the last may be shorter."""
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


def serially(call: Callable[[slice], Any], length: int, step: int) -> Iterator[Any]:
    """Call on one part after another."""
    return map(call, parts(length, step))


def on_threads(call: Callable[[slice], Any], length: int, step: int) -> Iterator[Any]:
    """Call on one thread per core; the calls release the interpreter's lock."""
    if length <= step:
        return serially(call, length, step)
    with ThreadPoolExecutor(cores()) as pool:
        return iter(list(pool.map(call, parts(length, step))))


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
