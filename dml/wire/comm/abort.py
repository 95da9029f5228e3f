"""How a run ends early: one line and one exit code, on every rank, within seconds."""

import os
import signal
import sys
import time
from typing import Any, NoReturn


def refuse(comm: Any, problem: str, code: int = 2) -> NoReturn:
    """End with that code and one line, whether all ranks saw the problem or one."""
    meet(comm, problem, code)
    sys.exit(code)


def leave(comm: Any, problem: str, code: int) -> NoReturn:
    """End likewise from anywhere at all: MPI's own end might wait for ever."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a second one must not end MPI midway
    meet(comm, problem, code)
    sys.stdout.flush()
    os._exit(code)


def meet(comm: Any, problem: str, code: int) -> None:
    """Say the problem once if all ranks come here; else end them after 2 seconds."""
    met = comm.Ibarrier()
    patience = time.monotonic() + 2
    while not met.Test():
        if time.monotonic() > patience:
            sys.stderr.write(f"rank {comm.rank}: {problem}\n")
            sys.stderr.flush()
            comm.Abort(code)
        time.sleep(0.001)
    if comm.rank == 0:
        sys.stderr.write(f"{problem}\n")
        sys.stderr.flush()
