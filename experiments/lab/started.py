"""Start other experiments: Python, mpirun and the environment."""

import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from lab import flags

from dml import processes
from dml.runs import results
from dml.types import BadInput

EXPERIMENTS = Path(__file__).parents[1]
MPI_VARIABLES = ("PMI", "HYDI", "MPI_", "OMPI", "PRTE")  # variables of an outer mpirun
# kept: settings of Open MPI by users and by launch/environment.sh
SETTINGS = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}
SETTINGS |= {"OMPI_MCA_osc", "OMPI_MCA_op", "PRTE_MCA_rmaps_default_mapping_policy"}
SETTINGS |= {"PRTE_MCA_hwloc_default_binding_policy"}


def python(ranks: int = 0, pinned: bool = False) -> list[str]:
    """Return the command that starts Python, by mpirun unless `ranks` is 0.

    The processes end with this one.

    Args:
      ranks: Number of ranks; 0: no mpirun.
      pinned: Whether each rank runs on one core.
    """
    start = [processes.mpirun(), "-n", str(ranks)] if ranks else []
    pin = [str(Path(__file__).with_name("pinned.py"))] if pinned else []
    return [*processes.end_with_parent(), *start, sys.executable, *pin]


def environment() -> dict[str, str]:
    """Return the environment without the variables of an outer mpirun.

    Settings of Open MPI are kept, such as the permission to start ranks as root.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name in SETTINGS or not name.startswith(MPI_VARIABLES)
    }


def flag_arguments(
    values: flags.FlagValues, leave_out: Collection[str], add: Collection[str] = ()
) -> list[str]:
    """Return flags of this command line as arguments of another command.

    Args:
      values: Flags.
      leave_out: Names of flags to leave out.
      add: Names of flags to add even if the command line lacks them.
    """
    return [
        f"--{name}={value}"
        for name, value in flags.chosen(values).items()
        if (values[name].present and name not in leave_out) or name in add
    ]


def run(
    name: str,
    ranks: int,
    script: str,
    options: Sequence[str],
    out: Path,
    *,
    pinned: bool = False,
) -> results.Run:
    """Run a command of experiments/ in a separate process; return its results.

    Args:
      name: Name of the run in error messages.
      ranks: Number of ranks; 0 runs without mpirun.
      script: File of the command.
      options: Flags of the command.
      out: Run folder; an earlier run in it is replaced.
      pinned: Whether each rank runs on one core.
    """
    path = str(EXPERIMENTS / script)
    words = [path, *options, "--overwrite", f"--out={out}"]
    output(name, [*python(ranks, pinned), *words])
    return results.read(out)


def output(name: str, command: Sequence[str]) -> str:
    """Run a command without the variables of an outer mpirun; return its output.

    Args:
      name: Name of the run in error messages.
      command: Words of the command.
    """
    process = subprocess.run(command, env=environment(), capture_output=True, text=True)
    if process.returncode:
        last = " ".join(process.stderr.split()[-60:])
        raise BadInput(f"{name} ended with {process.returncode}: {last}")
    return process.stdout
