"""Real ranks: each test starts a few under mpirun, and nothing outlives it."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.commands import HUNG

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PATH = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
LEFT_SECONDS = 60  # after which an unused file in shared memory is a leftover
OPEN_MPI = (BIN / "ompi_info").exists()
OPEN_MPI_VARIABLES = {  # ranks of root, more than cores; no window over networks
    **{"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    **{"OMPI_MCA_osc": "^ucx", "PMIX_MCA_pcompress_base_silence_warning": "1"},
}
ALONE = r"mpich_shm_[0-9a-f]{1,6}_\d+"
MPIRUN = shutil.which("mpirun", path=PATH)


class Ended(NamedTuple):
    """What a run under mpirun left behind."""

    code: int
    out: str
    err: str
    left: int  # files in shared memory


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.mpi)


@pytest.fixture(scope="session")
def mpirun(tmp_path_factory):
    """Run a module of this folder on real ranks; kill them all after `timeout` s."""
    # where auto keeps its rates, so that it measures each number of ranks once
    rates = tmp_path_factory.mktemp("rates")

    def run(size: int, module: str, *args: object, timeout: float = HUNG) -> Ended:
        env = os.environ | OPEN_MPI_VARIABLES
        env |= {
            "OMP_NUM_THREADS": "1",
            "DML_DATA": str(rates),
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "error",
        }
        command = [MPIRUN, "-n", str(size), sys.executable, "-m", f"tests.mpi.{module}"]
        before = memory()
        process = subprocess.Popen(
            [*command, *map(str, args)],
            cwd=ROOT,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # mpirun then ends its ranks
            out, err = process.communicate(timeout=10)
            pytest.fail(f"{command} hung for {timeout} s:\n{out}\n{err}")
        left = {file for file in memory() - before if not in_use(file)}
        patience = time.monotonic() + LEFT_SECONDS if not process.returncode else 0
        while (
            left and time.monotonic() < patience
        ):  # of another run that starts or ends
            time.sleep(0.1)
            left = {file for file in left & memory() if not in_use(file)}
        for file in left:  # MPICH cleans up only after ranks that end well
            file.unlink(missing_ok=True)  # another run may have
        if OPEN_MPI:  # its mpirun ends the output of ranks by resets of the colour
            out = out.replace("\x1b[0m", "")
        # Open MPI writes a NUL before some lines
        return Ended(process.returncode, out, err.replace("\0", ""), len(left))

    return run


def memory() -> set[Path]:
    """Files of MPICH in shared memory.

    That of a process without mpirun has its number, of up to 6 hexadecimal digits;
    those of mpirun have 8.
    """
    found = Path("/dev/shm").glob("mpich*")
    return {file for file in found if not re.fullmatch(ALONE, file.name)}


def in_use(file: Path) -> bool:
    """Say whether some process maps a file: another run's, then, not a leftover."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if str(file) in maps.read_text():
                return True
        except OSError:
            continue
    return False
