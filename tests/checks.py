"""Checks that need devices of their own: a process runs them, and tests read its words.

JAX counts its devices once and for all, so they can't be those of pytest's process.
"""

import os
import sys
import traceback
from functools import cache

import jax

from tests.commands import PYTHON, output

# Options with which XLA rounds an operation on the CPU without regard to the program
# around it, and compiles in half of the time. Others, by the version of JAX:
#
# optimization level 0   0.10  fine
#                        0.12  tanh has other bits if its operand is a slice
# products by YNNPACK    0.10  large ones only
#                        0.12  all; the order of a sum depends on the number of rows
#
# With XLA's own options, fusions depend on the whole program in every version.
XLA_FLAGS = (
    "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_experimental_ynn_fusion_type="
)


@cache  # several files may ask for it
def said(module):
    """Return what a module of checks prints, as a command."""
    return output(PYTHON, "-W", "error", "-m", module, JAX_PLATFORMS="cpu")


def run(checks, devices):
    """Call all checks on so many devices; print each one's name, and what it raised."""
    jax.config.update("jax_num_cpu_devices", devices)
    os.environ["XLA_FLAGS"] = XLA_FLAGS  # read when the devices are initialised
    for check in checks:
        try:
            check()
        except Exception:
            sys.stdout.write(f"{check.__name__}: {traceback.format_exc()}\n")
        else:
            sys.stdout.write(f"{check.__name__}: ok\n")
