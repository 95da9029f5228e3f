"""Seconds by phase, measured by any clock, such as time.perf_counter or comm.Wtime."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")


class Phase:
    """A context manager that adds its duration to a phase of a timer.

    It is a class because contextlib.contextmanager is slower, and strategies enter it
    several times per update.
    """

    __slots__ = ("name", "start", "timer")

    def __init__(self, timer: "Timer", name: str) -> None:
        self.timer, self.name = timer, name

    def __enter__(self) -> None:
        self.start = self.timer.clock()

    def __exit__(self, *_: Any) -> None:
        timer, name = self.timer, self.name
        end = timer.clock()
        timer.seconds[name] = timer.seconds.get(name, 0.0) + end - self.start
        if timer.on_end:
            timer.on_end(name, self.start, end)


class Timer:
    """Sums of seconds by phase until the next lap.

    Args:
      clock: Returns the time in seconds.
      on_end: Called at the end of every phase with (phase, start, end).
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        on_end: Callable[[str, float, float], object] | None = None,
    ) -> None:
        self.clock, self.on_end = clock, on_end
        self.seconds: dict[str, float] = {}

    def __call__(self, phase: str) -> "Phase":
        """Return a context that adds its duration to the phase.

        Synchronize the device before the end of the context.
        """
        return Phase(self, phase)

    def waits(self, phase: str, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items; add the time spent waiting for each item to the phase."""
        end, iterator = object(), iter(items)
        while True:
            with self(phase):
                item = next(iterator, end)
            if item is end:
                return
            yield item  # type: ignore[misc]

    def lap(self) -> dict[str, float]:
        """Return the seconds by phase since the last lap, and reset them."""
        seconds, self.seconds = self.seconds, {}
        return seconds
