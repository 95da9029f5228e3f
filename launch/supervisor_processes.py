"""A run of mpirun whose ranks are all ended with it."""

import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

VARIABLE = "DML_SUPERVISED_RUN"  # of the environment of all processes of a run
KILL_SECONDS = 0.02  # between two searches for processes that were killed


class SupervisedRun:
    """mpirun and its ranks.

    MPICH starts each rank in a separate session, and the ranks of Open MPI survive
    the death of mpirun. All are identified by a variable of their environment in /proc;
    on systems other than Linux only mpirun is ended.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.variable = f"{VARIABLE}={uuid.uuid4()}"
        setpriv = shutil.which("setpriv")
        # mpirun gets SIGTERM if the supervisor is killed; it then ends its ranks
        guard = [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []
        name, _, value = self.variable.partition("=")
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
        variable = self.variable.encode()
        living = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # ended, or of another user
                if variable in (path / "environ").read_bytes().split(b"\0"):
                    living.append(int(path.name))
        return living
