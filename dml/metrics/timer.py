"""LOG: named phases in, seconds a phase out, by any clock (comm.Wtime is virtual)."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


class Timer:
    """Adds up seconds by phase until the next lap.

    `delay(work)` is called at the end of a phase that computes: it lets virtual ranks
    take their time, and straggling real ones sleep. `seen(phase, start, end)` hears of
    every phase.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        delay: Callable[[float], object] | None = None,
        seen: Callable[[str, float, float], object] | None = None,
    ) -> None:
        self.clock, self.delay, self.seen = clock, delay, seen
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str, work: float = 0.0) -> Iterator[None]:
        """Count what runs inside under phase; force the device before you leave.

        Work is what this rank computes: 1 is its even share of an update.
        """
        start = self.clock()
        try:
            yield
            if work and self.delay:
                self.delay(work)
        finally:
            end = self.clock()
            self.seconds[phase] = self.seconds.get(phase, 0.0) + end - start
            if self.seen:
                self.seen(phase, start, end)

    def waits(self, phase: str, items: Iterable[Item]) -> Iterator[Item]:
        """Pass items on; count the time until each comes under phase."""
        ends, rest = object(), iter(items)
        while True:
            with self(phase):
                item = next(rest, ends)
            if item is ends:
                return
            yield item  # type: ignore[misc]

    def lap(self) -> dict[str, float]:
        """Return the seconds by phase since the last lap, and start over."""
        seconds, self.seconds = self.seconds, {}
        return seconds
