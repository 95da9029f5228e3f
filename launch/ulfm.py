"""Run mpirun of Open MPI with ULFM; end it if its ranks do not start in time.

    python launch/ulfm.py SECONDS mpirun --with-ft ulfm -n P python experiments/x.py

launch/local.sh --elastic calls this module. If a rank dies inside MPI_Init, the others
wait in it forever, which is a limit of Open MPI. After MPI_Init, each rank creates the
file that the variable DML_STARTED names; without this file after SECONDS all ranks are
killed, and the exit code is 1. With SECONDS = 0 there is no limit. At its end, each
rank writes to the file; otherwise a code 0 of mpirun means that all ranks were killed.
Only the standard library is imported.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from supervisor import counted_signals, say
from supervisor_processes import SupervisedRun

STARTED = "DML_STARTED"  # see dml.wire.comm.mpi
FAILED = 1  # exit code


def run(command: Sequence[str], seconds: float, signals: Callable[[], int]) -> int:
    """Run a command; return its exit code, or FAILED. No process is left then.

    Args:
      command: mpirun with its arguments.
      seconds: Time until the ranks must have started; 0: no limit.
      signals: () -> number of signals to stop that were received.
    """
    with tempfile.TemporaryDirectory(prefix="dml-started-") as folder:
        file = Path(folder, "started")
        deadline = time.monotonic() + seconds

        def is_late() -> bool:
            return bool(seconds) and time.monotonic() > deadline and not file.exists()

        code = SupervisedRun(command, {STARTED: str(file)}).run_to_end(signals, is_late)
        if code < 0 and is_late():
            say(
                f"expected all ranks to start within {seconds:g} s, got none that has: "
                "a rank may have died inside MPI_Init; start the run again, or pass a "
                "larger --start"
            )
            return FAILED
        if code == 0 and not (file.exists() and file.read_text()):
            say("expected a rank that lives until the end, got none; start it again")
            return FAILED
    return code if code >= 0 else 128 - code


def main(argv: Sequence[str]) -> int:
    with counted_signals() as signals:
        return run(argv[1:], float(argv[0]), signals)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
