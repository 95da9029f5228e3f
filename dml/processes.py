"""Processes: children that end with their parent, output without a reader, Ctrl-C."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

OUTPUT_LOST = 141  # exit code of a shell after SIGPIPE
STOPPED = 130  # exit code of a shell after Ctrl-C
REPEATED_SECONDS = 1.0  # within which a terminal and mpirun send the same Ctrl-C
RANKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")  # variables of mpirun


def rank() -> int:
    """Return the rank that mpirun has given to this process; 0 without mpirun."""
    return int(next((os.environ[name] for name in RANKS if name in os.environ), "0"))


def end_with_parent() -> list[str]:
    """Return a command prefix: SIGTERM when the thread that started it ends.

    mpirun ends its ranks after SIGTERM. The prefix is empty where setpriv of util-linux
    is missing; there, a child continues after its parent was killed.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


def mpirun() -> str:
    """Return the mpirun of this environment, or else the one on PATH."""
    from dml.types import BadInput  # slow: NumPy

    folder, path = Path(sys.executable).parent, os.environ.get("PATH", "")
    found = shutil.which("mpirun", path=f"{folder}{os.pathsep}{path}")
    if not found:
        raise BadInput(
            f"expected mpirun next to {sys.executable} or on PATH, got none; start "
            "with launch/local.sh, which installs MPI as a wheel, or install a system "
            "package (Debian: mpich or openmpi-bin)"
        )
    return found


class Stream:
    """A standard stream that never raises: results are written without a reader.

    After an error, as of `command | head -1` or of a full disk, its text is discarded.

    Args:
      stream: Standard output or error.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.lost = stream, False

    def write(self, text: str) -> int:
        try:
            return self.stream.write(text)
        except (OSError, ValueError):  # ValueError: the stream was closed
            self.discard()
            return len(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except (OSError, ValueError):
            self.discard()

    def discard(self) -> None:
        """Discard the text from now on, and the text that is not yet written."""
        self.lost = True
        with open(os.devnull, "w") as nothing:
            try:
                os.dup2(nothing.fileno(), self.stream.fileno())
            except (OSError, ValueError):
                self.stream = open(os.devnull, "w")  # noqa: SIM115

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def safe_output() -> Iterator[None]:
    """Make standard output and error streams to which every text can be written.

    Characters that the encoding of a stream lacks are escaped. If output is lost, a
    command that succeeds has the exit code 141.
    """
    open_missing_streams()
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    streams = [Stream(stream) for stream in before]
    sys.stdout, sys.stderr = streams
    code = None
    try:
        yield
    except SystemExit as ended:
        code = ended.code
        if code:
            raise
    finally:
        for stream in streams:
            stream.flush()
        sys.stdout, sys.stderr = before
    if any(stream.lost for stream in streams):
        code = OUTPUT_LOST
    if code is not None:
        sys.exit(code)


def open_missing_streams() -> None:
    """Open os.devnull in the place of standard streams that the parent has closed.

    Otherwise the next file that is opened would receive the output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def end_at_interrupt() -> None:
    """End the process at Ctrl-C with exit code 130 and, on rank 0, a line.

    It is for the imports of a command, where an exception would be a traceback.
    """

    def end(number: int, frame: Any) -> None:
        if rank() == 0:
            os.write(2, f"{os.path.basename(sys.argv[0])}: stopped\n".encode())
        os._exit(STOPPED)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)


def raise_at_interrupt() -> None:
    """Raise KeyboardInterrupt at Ctrl-C once; a later Ctrl-C ends the process."""
    first: list[float] = []

    def interrupt(number: int, frame: Any) -> None:
        if not first:
            first.append(time.monotonic())
            raise KeyboardInterrupt
        if time.monotonic() - first[0] > REPEATED_SECONDS:
            os._exit(STOPPED)

    if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):
        signal.signal(signal.SIGINT, interrupt)
