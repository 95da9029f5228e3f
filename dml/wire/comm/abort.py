"""End a run with an exit code and a line of text, on all ranks within seconds."""

import os
import signal
import sys
import time
from typing import Any, NoReturn

from dml.types import RankFailed

TIMEOUT = 2.0  # seconds


def exit_with_error(comm: Any, problem: str, code: int = 2) -> NoReturn:
    """Print the problem and exit, whether one rank or all ranks have the problem."""
    report(comm, problem, code)
    sys.exit(code)


def exit_without_cleanup(comm: Any, problem: str, code: int) -> NoReturn:
    """Print the problem and exit without MPI's finalization, which might hang."""
    for interrupt in (signal.SIGINT, signal.SIGTERM):
        signal.signal(interrupt, signal.SIG_IGN)  # a second signal must not interrupt
    report(comm, problem, code)
    sys.stdout.flush()
    os._exit(code)


def report(comm: Any, problem: str, code: int) -> None:
    """Print the problem once if all ranks call this; else end all ranks by Abort.

    A rank waits TIMEOUT seconds for the other ranks.
    """
    together = all_call(comm)
    if not together or comm.rank == 0:
        name = "" if together else f"rank {comm.rank}: "
        sys.stderr.write(f"{name}{problem}\n")
        sys.stderr.flush()
    if not together:
        silence_stderr()
        comm.Abort(code)


def silence_stderr() -> None:
    """Discard what MPI writes to the standard error of this process."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


def all_call(comm: Any) -> bool:
    """Return whether all ranks call this within TIMEOUT seconds, and none has died."""
    deadline = time.monotonic() + TIMEOUT
    try:
        barrier = comm.Ibarrier()
        while not barrier.Test():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
    except RankFailed:
        return False
    return True
