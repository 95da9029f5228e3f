"""A sweep's lock on its folder, its signals, and the end of its runs."""

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
    """Make the folder and lock it; tasks of one array share the lock.

    The system releases the lock when the process ends.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        folder = os.open(out, os.O_RDONLY)
    except OSError as error:
        raise BadInput(
            f"expected a folder to write to, got {error}; pass --out=<another>"
        ) from error
    try:
        fcntl.flock(
            folder, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        )
        yield
    except BlockingIOError as error:
        raise BadInput(
            f"expected one sweep at a time in {out}, got another that runs; wait for "
            "it, or pass --out=<another>"
        ) from error
    finally:
        os.close(folder)


@cache
def ending_with_us() -> list[str]:
    """Return the command that ends a run when the sweep is killed, on Linux.

    Otherwise the run would share its folder and cores with those of the next sweep.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C, SIGTERM or SIGHUP came."""
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
