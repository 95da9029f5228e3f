"""Seconds of functions that are called in turns.

    a b c   a b c   a b c        not   a a a   b b b   c c c

A drift of the machine's speed is spread over all functions, so that their ratios are
comparable.
"""

from collections.abc import Callable, Hashable, Mapping
from time import perf_counter
from typing import Any, TypeVar

from dml.types import no_op

Key = TypeVar("Key", bound=Hashable)


def alternate(
    calls: Mapping[Key, Callable[[], Any]],
    repeats: int,
    *,
    warm: int = 1,
    before: Callable[[Key, bool], Any] = no_op,
) -> dict[Key, list[float]]:
    """Return the seconds of each call, by key.

    Args:
      calls: Functions by key; one that uses a device waits for its result.
      repeats: Number of timed calls of each function.
      warm: Number of calls before them, such as 1 for a function that is compiled.
      before: Function of a key, and of whether its call is timed, that is called before
        the call.
    """
    seconds: dict[Key, list[float]] = {key: [] for key in calls}
    for repeat in range(-warm, repeats):
        for key, call in calls.items():
            before(key, repeat >= 0)
            start = perf_counter()
            call()
            if repeat >= 0:
                seconds[key].append(perf_counter() - start)
    return seconds
