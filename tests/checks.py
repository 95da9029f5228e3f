"""Checks that need devices of their own: a process runs them, and tests read its words.

JAX counts its devices once and for all, so they can't be those of pytest's process.
"""

import os
import subprocess
import sys
import traceback
from functools import cache
from pathlib import Path

import jax


@cache  # several files may ask for it
def said(module):
    """Return what a module of checks prints, as a command."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", module],
        cwd=Path(__file__).parents[1],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def run(checks, devices):
    """Call all checks on so many devices; print each one's name, and what it raised."""
    jax.config.update("jax_num_cpu_devices", devices)
    jax.config.update("jax_disable_most_optimizations", True)  # compiles in half of it
    for check in checks:
        try:
            check()
        except Exception:
            sys.stdout.write(f"{check.__name__}: {traceback.format_exc()}\n")
        else:
            sys.stdout.write(f"{check.__name__}: ok\n")
