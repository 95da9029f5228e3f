"""Times of the saves of a run: snapshots between steps, writes in the background.

    step 7 │ snapshot │ step 8 │ step 9 │ step 10 │ snapshot │ step 11 │ step 12
                       └──── write step 7 ────┘               └─── write step 10 ──

Mohan 2021, CheckFreq: the interval between saves follows from their measured cost.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dml.runs.background import Background
from dml.types import Step

Write = Callable[[], object]  # writes a snapshot
RECENT_STEPS = 101  # steps whose median is the duration of a step without a write
FIRST_STEPS = 3  # steps before the first save by overhead; the first one compiles
SLOW_STEPS = 3  # steps after a save or a write, whose caches are cold


class Saves:
    """Saves of a run; a save first waits for the write of the save before it.

    Args:
      every: Seconds between saves; 0: none are due.
      share: Largest share of the time that saves take, in place of `every`; 0: no
        bound.
      threaded: Whether writes run in the background.
    """

    def __init__(self, every: float, share: float = 0.0, threaded: bool = True) -> None:
        self.every, self.share, self.threaded = every, share, threaded
        self.stall = self.delay = 0.0  # seconds that the last save has added
        self._idle: deque[float] = deque(maxlen=RECENT_STEPS)
        self._slow = 0  # steps that count as delayed
        self._last = self._ended = time.monotonic()
        self._background = Background()

    def timed(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Yield the steps; measure their delay by a write in progress.

        The time from the end of a step to the next one belongs to the next, up to the
        duration of a step: an evaluation is not a delay.
        """
        iterator = iter(steps)
        self._ended = time.monotonic()
        while True:
            writing, begun = self.writing, time.monotonic()
            step = next(iterator, None)
            if step is None:
                return
            before, self._ended = self._ended, time.monotonic()
            seconds = self._ended - begun
            self.count(seconds + min(begun - before, seconds), writing)
            yield step

    def count(self, seconds: float, writing: bool) -> None:
        """Count a step; `writing`: whether a write was in progress at its start."""
        if writing:
            self._slow = SLOW_STEPS
        if not (writing or self._slow):
            self._idle.append(seconds)
            return
        self._slow -= not writing
        if self._idle:
            self.delay += seconds - statistics.median(self._idle)

    @property
    def writing(self) -> bool:
        """Whether a write is in progress."""
        return self._background.busy

    @property
    def write_seconds(self) -> float:
        """Seconds of the last write in the background."""
        return self._background.seconds

    @property
    def cost(self) -> float:
        """Seconds that the last save has added so far."""
        return self.stall + max(0.0, self.delay)

    @property
    def wait(self) -> float:
        """Seconds from the last save to the next one."""
        if not self.share:
            return self.every
        slower = max(0.0, self.delay)
        return slower + interval(self.stall + slower, self.write_seconds, self.share)

    def due(self) -> bool:
        """Return whether it is time for the next save."""
        if self.share and (self.writing or len(self._idle) < FIRST_STEPS):
            return False
        passed = time.monotonic() - self._last
        return bool(self.every or self.share) and passed >= self.wait

    def save(self, snapshot: Callable[[], Write | None]) -> None:
        """Copy the state and start to write it; raise the error of an earlier write.

        Args:
          snapshot: Returns the function that writes the snapshot, or None if this rank
            does not write.
        """
        begun = time.monotonic()
        self._background.wait()
        write = snapshot()
        if write and self.threaded:
            self._background.start(write)
        elif write:
            write()
        self._last = self._ended = time.monotonic()
        self.stall, self.delay = self._last - begun, 0.0
        self._slow = SLOW_STEPS

    def __enter__(self) -> "Saves":
        return self

    def __exit__(self, *error: Any) -> None:
        self._background.__exit__(*error)


def interval(cost: float, write: float, share: float) -> float:
    """Return the shortest work between saves with a bounded overhead, in seconds.

    Args:
      cost: Seconds that a save adds to the training: the snapshot, and the delay of
        steps during the write.
      write: Seconds of the write. A save must not start before its end.
      share: Largest cost as a share of the work.
    """
    return max(write, cost / share)
