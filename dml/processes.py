"""Processes: children that end with their parent, and output without a reader."""

import os
import select
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PIPE_CLOSED = 141  # exit code of a shell after SIGPIPE


def end_with_parent() -> list[str]:
    """Return a command prefix: SIGTERM when the thread that started it ends.

    mpirun ends its ranks after SIGTERM. The prefix is empty where setpriv of util-linux
    is missing; there, a child continues after its parent was killed.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


@contextmanager
def ended_by_closed_output() -> Iterator[None]:
    """Exit with code 141 and without a message if the reader of the output has ended.

    `command | head -1` closes the output of the command after one line.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        closed = [number for number in (1, 2) if is_closed(number)]
        if not closed:
            raise
        with open(os.devnull, "w") as nothing:
            for number in closed:  # Python flushes the streams once more at its exit
                os.dup2(nothing.fileno(), number)
        sys.exit(PIPE_CLOSED)
    except SystemExit as error:  # rich raises it with code 1 after a BrokenPipeError
        if isinstance(error.__context__, BrokenPipeError):
            sys.exit(PIPE_CLOSED)
        raise


def is_closed(number: int) -> bool:
    """Return whether a file descriptor is a pipe whose reader has ended."""
    poll = select.poll()
    poll.register(number, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
