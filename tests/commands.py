"""Run a command in a process of its own, as a user does."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON = sys.executable
# The cache of compiled programs of this process, for a process that compiles while this
# one waits: it writes them, too. Others, such as ranks, only read; see conftest.py.
COMPILED = {
    name: value
    for name, value in os.environ.items()
    if name.startswith(("JAX_COMPILATION_CACHE_", "JAX_PERSISTENT_CACHE_"))
}
HUNG = 1200  # seconds after which a process is taken to hang; idle cores take up to 60


def command(*argv, cwd=ROOT, timeout=HUNG, **env):
    """Return the ended process, with its output; mpirun is that of this Python."""
    paths = {"PATH": f"{Path(PYTHON).parent}{os.pathsep}{os.environ['PATH']}"}
    paths["PYTHONPATH"] = f"{ROOT}{os.pathsep}{ROOT / 'experiments'}"
    return subprocess.run(
        list(map(str, argv)),
        cwd=cwd,
        env=os.environ | paths | {"OMP_NUM_THREADS": "1"} | env,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def output(*argv, **options):
    """Return what a command writes to standard output; it must end well, in silence."""
    ended = command(*argv, **options)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout
