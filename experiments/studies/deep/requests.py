"""Requests to an elastic run: to stop, and to change the number of workers."""

import time
from collections.abc import Callable
from pathlib import Path

TARGET_SECONDS = 0.5  # between two reads of the requested number of workers
DIGITS = 9
TARGET = "workers"  # file in the run folder with the requested number of workers


class Requests:
    """Requests to stop and to change the number of workers, read by each worker.

    Args:
      path: Run folder.
      stopped: () -> whether a signal to stop was received.
    """

    def __init__(self, path: Path, stopped: Callable[[], bool]):
        self.file, self.stopped = path / TARGET, stopped
        self.read, self.target = 0.0, 0

    def __call__(self) -> tuple[bool, int]:
        now = time.monotonic()
        if now - self.read >= TARGET_SECONDS:
            self.read, self.target = now, requested_workers(self.file)
        return self.stopped(), self.target


def requested_workers(file: Path) -> int:
    """Return the number in a file; 0, no request, without one."""
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return 0
    return int(text) if text.isdecimal() and len(text) <= DIGITS else 0
