"""Seconds by phase, by any clock (comm.Wtime is virtual)."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


class Timer:
    """Sums of seconds by phase until the next lap.

    `seen(phase, start, end)` is called at the end of every phase.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        seen: Callable[[str, float, float], object] | None = None,
    ) -> None:
        self.clock, self.seen = clock, seen
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time inside to the phase; synchronize the device before the end."""
        start = self.clock()
        try:
            yield
        finally:
            end = self.clock()
            self.seconds[phase] = self.seconds.get(phase, 0.0) + end - start
            if self.seen:
                self.seen(phase, start, end)

    def waits(self, phase: str, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items; add the time until each is ready to the phase."""
        ends, rest = object(), iter(items)
        while True:
            with self(phase):
                item = next(rest, ends)
            if item is ends:
                return
            yield item  # type: ignore[misc]

    def lap(self) -> dict[str, float]:
        """Return the seconds by phase since the last lap, and reset them."""
        seconds, self.seconds = self.seconds, {}
        return seconds
