"""A run of mpirun whose ranks are ended with it, wherever they are."""

import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

MARK = "DML_SUPERVISED_RUN"  # variable by which the processes of a run are found
KILL_SECONDS = 0.02  # between two searches for processes that were killed


class SupervisedRun:
    """mpirun and its ranks.

    MPICH starts each rank in a session of its own, and the ranks of Open MPI survive
    the death of mpirun. All are found by a variable of their environment in /proc, so
    other systems than Linux end mpirun only.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.mark = f"{MARK}={uuid.uuid4()}"
        setpriv = shutil.which("setpriv")
        # mpirun gets SIGTERM if the supervisor is killed; it then ends its ranks
        guard = [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []
        name, _, value = self.mark.partition("=")
        self.process = subprocess.Popen(
            [*guard, *command],
            stdin=subprocess.DEVNULL,
            env=os.environ | {name: value},
            start_new_session=True,  # Ctrl-C is for the supervisor, which passes it on
        )

    def code(self) -> int | None:
        """Return the exit code of mpirun, or None while it runs."""
        return self.process.poll()

    def terminate(self) -> None:
        """Send SIGTERM to mpirun, which passes it on to the ranks."""
        self.process.terminate()

    def kill(self) -> int:
        """Kill all processes that are left; return the exit code of mpirun."""
        self.process.kill()
        code = self.process.wait()
        while left := self.processes():
            for number in left:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(KILL_SECONDS)
        return code

    def processes(self) -> list[int]:
        """Return the numbers of the living processes of this run."""
        mark = self.mark.encode()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # ended, or of another user
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
        return found
