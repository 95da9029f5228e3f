"""A run of mpirun whose ranks are all ended with it."""

import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

VARIABLE = "DML_SUPERVISED_RUN"  # of the environment of all processes of a run
KILL_SECONDS = 0.02  # between two searches for processes that were killed
GRACE_SECONDS = 60.0  # from a signal until ranks that have not saved are killed
POLL_SECONDS = 0.02


class SupervisedRun:
    """mpirun and its ranks.

    MPICH starts each rank in a separate session, and the ranks of Open MPI survive
    the death of mpirun. All are identified by a variable of their environment in /proc;
    on systems other than Linux only mpirun is ended.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> None:
        self.variable = f"{VARIABLE}={uuid.uuid4()}"
        setpriv = shutil.which("setpriv")
        # mpirun gets SIGTERM if the supervisor is killed; it then ends its ranks
        guard = [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []
        name, _, value = self.variable.partition("=")
        self.process = subprocess.Popen(
            [*guard, *command],
            stdin=subprocess.DEVNULL,
            env=os.environ | (env or {}) | {name: value},
            start_new_session=True,  # Ctrl-C is for the supervisor, which passes it on
        )

    def run_to_end(
        self, signals: Callable[[], int], is_late: Callable[[], bool] = lambda: False
    ) -> int:
        """Wait for the end of mpirun; return its exit code. No rank is left then.

        The first signal is passed on to the ranks, which then save their state; a
        second signal kills them.

        Args:
          signals: () -> number of signals to stop that were received.
          is_late: () -> whether the ranks must be killed.
        """
        passed, deadline = 0, 0.0
        try:
            while self.code() is None and not is_late():
                if signals() and not passed:
                    passed, deadline = 1, time.monotonic() + GRACE_SECONDS
                    self.terminate()
                if signals() > 1 or (passed and time.monotonic() > deadline):
                    break
                time.sleep(POLL_SECONDS)
        finally:
            code = self.kill()
        return code

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
