"""Checks that need devices of their own: a process runs them, and tests read its words.

JAX counts its devices once and for all, so they can't be those of pytest's process.
"""

import os
import platform
import sys
import traceback
from functools import cache

import jax

from tests.commands import COMPILED, PYTHON, output

# Options with which XLA rounds an operation on the CPU without regard to the program
# around it, and compiles in half of the time. Facts by version of JAX:
#
# optimization level 0   0.10  fine, and the fastest to compile
#                        0.12  tanh has other bits if its operand is a slice
# products by YNNPACK    0.10  large ones only
#                        0.12  all; the order of a sum depends on the number of rows
#
# With XLA's own options, fusions depend on the whole program in every version. Code for
# AVX-512 has other tiles; all x86-64 processors run the code of those without it.
LEVEL_0 = jax.__version_info__ < (0, 11)
XLA_FLAGS = (
    "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_experimental_ynn_fusion_type="
)
MAX_ISA = "--xla_cpu_max_isa=AVX2 " if platform.machine() in ("x86_64", "AMD64") else ""


@cache  # several files may ask for it
def said(module):
    """Return what a module of checks prints, as a command."""
    variables = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
    return output(PYTHON, "-W", "error", "-m", module, **variables, **COMPILED)


def run(checks, devices):
    """Call all checks on so many devices; print each one's name, and what it raised."""
    jax.config.update("jax_num_cpu_devices", devices)
    if LEVEL_0:
        jax.config.update("jax_disable_most_optimizations", True)
    # read when the devices are initialised
    os.environ["XLA_FLAGS"] = MAX_ISA + ("" if LEVEL_0 else XLA_FLAGS)
    for check in checks:
        try:
            check()
        except Exception:
            sys.stdout.write(f"{check.__name__}: {traceback.format_exc()}\n")
        else:
            sys.stdout.write(f"{check.__name__}: ok\n")
