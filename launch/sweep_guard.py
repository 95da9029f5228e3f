"""What guards a sweep: one at a time in a folder, Ctrl-C loses nothing, all ends."""

import fcntl
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from dml.types import BadInput


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


@cache
def ending_with_us() -> list[str]:
    """Return what starts a run so that it ends when the sweep is killed, on Linux.

    Else the next sweep would run in the folders, and on the cores, that it still has.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


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
