"""How an experiment starts other experiments: Python, mpirun and the environment."""

import os
import shutil
import sys
from pathlib import Path

from dml.types import BadInput

OURS = ("PMI", "HYDI", "MPI_", "OMPI", "PRTE")  # variables of an outer mpirun


def python(ranks: int = 0) -> list[str]:
    """Return the command of Python, on a number of ranks unless it is 0."""
    return [mpirun(), "-n", str(ranks), sys.executable] if ranks else [sys.executable]


def mpirun() -> str:
    """Return this environment's mpirun, or else one on PATH."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    found = shutil.which("mpirun", path=places)
    if not found:
        raise BadInput(
            "expected mpirun beside Python or on PATH, got none; start by launch/"
            "local.sh, which installs MPI as a wheel, or install the system's package "
            "(Debian: mpich, or openmpi-bin)"
        )
    return found


def environment() -> dict[str, str]:
    """Return the environment without the variables of an outer mpirun."""
    return {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
