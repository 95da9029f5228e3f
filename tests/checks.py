"""Checks that need devices of their own: a process runs them, and tests read its words.

JAX counts its devices once and for all, so they can't be those of pytest's process.
"""

import sys
import traceback
from functools import cache

import jax

from tests.commands import PYTHON, output


@cache  # several files may ask for it
def said(module):
    """Return what a module of checks prints, as a command."""
    return output(PYTHON, "-W", "error", "-m", module, JAX_PLATFORMS="cpu")


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
