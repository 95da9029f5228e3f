"""End a run early: one line and one exit code on every rank, within seconds."""

import os
import signal
import sys
import time
from typing import Any, NoReturn


def refuse(comm: Any, problem: str, code: int = 2) -> NoReturn:
    """End with an exit code and one line, if one rank or all ranks have the problem."""
    report_together(comm, problem, code)
    sys.exit(code)


def leave(comm: Any, problem: str, code: int) -> NoReturn:
    """End in the same way from any place; MPI's own abort might hang."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a second one must not end MPI midway
    report_together(comm, problem, code)
    sys.stdout.flush()
    os._exit(code)


def report_together(comm: Any, problem: str, code: int) -> None:
    """Print the problem once if all ranks have it; else end them after 2 seconds."""
    barrier = comm.Ibarrier()
    deadline = time.monotonic() + 2
    while not barrier.Test():
        if time.monotonic() > deadline:
            sys.stderr.write(f"rank {comm.rank}: {problem}\n")
            sys.stderr.flush()
            comm.Abort(code)
        time.sleep(0.001)
    if comm.rank == 0:
        sys.stderr.write(f"{problem}\n")
        sys.stderr.flush()
