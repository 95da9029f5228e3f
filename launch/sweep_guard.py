"""The lock of a sweep on its folder, and its signal handlers."""

import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dml.types import BadInput


@contextmanager
def lock_folder(out: Path, shared: bool) -> Iterator[None]:
    """Create and lock the folder of a sweep.

    A shared lock admits the other tasks of a Slurm array. The operating system releases
    the lock when the process ends.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        folder = os.open(out, os.O_RDONLY)
    except OSError as error:
        raise BadInput(
            f"expected a folder to write to, got {error}; pass another --out"
        ) from error
    try:
        fcntl.flock(
            folder, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        )
        yield
    except BlockingIOError as error:
        raise BadInput(
            f"expected one sweep at a time in {out}, got a second one; wait for "
            "the first, or pass another --out"
        ) from error
    finally:
        os.close(folder)


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True after SIGINT, SIGTERM or SIGHUP."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    received: list[int] = []

    def note(number: int, frame: Any) -> None:
        received.append(number)

    handlers = {number: signal.signal(number, note) for number in signals}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
