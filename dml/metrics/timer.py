"""LOG: named phases in, seconds a phase out, by any clock (comm.Wtime is virtual)."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Timer:
    """Adds up seconds by phase until the next lap."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Count what runs inside under phase; force the device before you leave."""
        start = self.clock()
        try:
            yield
        finally:
            spent = self.clock() - start
            self.seconds[phase] = self.seconds.get(phase, 0.0) + spent

    def lap(self) -> dict[str, float]:
        """Return the seconds by phase since the last lap, and start over."""
        seconds, self.seconds = self.seconds, {}
        return seconds
