"""What guards a sweep: one at a time in a folder, Ctrl-C loses nothing, all ends."""

import ctypes
import fcntl
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dml.types import BadInput

LINUX = ctypes.CDLL(None) if sys.platform == "linux" else None
PARENT_DIED = 1  # PR_SET_PDEATHSIG of linux/prctl.h


@contextmanager
def alone(out: Path, shared: bool) -> Iterator[None]:
    """Make the folder and hold it; tasks of one array share it, as their cells differ.

    The system lets go of it however the sweep ends.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        held = os.open(out, os.O_RDONLY)
    except OSError as error:
        raise BadInput(
            f"expected a folder to write to, got {error}; pass --out=<another>"
        ) from error
    try:
        fcntl.flock(held, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise BadInput(
            f"expected one sweep at a time in {out}, got another that runs; wait for "
            "it, or pass --out=<another>"
        ) from error
    finally:
        os.close(held)


def outlived() -> None:
    """Let this process end when its parent does: a sweep that is killed ends no run.

    Else the next sweep would run in the folders, and on the cores, that it still has.
    """
    if LINUX:
        LINUX.prctl(PARENT_DIED, signal.SIGTERM)


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C, SIGTERM and a closed terminal into a yes to what is yielded."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    came: list[int] = []

    def note(number: int, frame: Any) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in signals}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
