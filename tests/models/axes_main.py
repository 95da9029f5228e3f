"""What layers over an axis must do on four devices; prints the name of each check."""

import os
import subprocess
import sys
import traceback
from functools import cache
from pathlib import Path

import jax

from tests.models import experts_checks, ring_checks
from tests.models.four_devices import DEVICES


@cache  # of one process, whichever test asks first
def said():
    """Return what this file says in a process whose devices it can still count."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.models.axes_main"],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def main():
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.config.update("jax_disable_most_optimizations", True)  # compiles in half of it
    for check in (*experts_checks.CHECKS, *ring_checks.CHECKS):
        try:
            check()
        except Exception:
            sys.stdout.write(f"{check.__name__}: {traceback.format_exc()}\n")
        else:
            sys.stdout.write(f"{check.__name__}: ok\n")


if __name__ == "__main__":
    main()
