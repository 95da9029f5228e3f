"""Run a script with each rank on one core; ranks in excess of the cores share them.

mpirun -n 4 python experiments/lab/pinned.py experiments/hybrid.py --mesh=all

Libraries that start a thread for each core, such as XLA, then start one.
"""

import os
import runpy
import sys
from pathlib import Path

from dml.processes import rank


def pin() -> None:
    """Run this process on one of its cores; no effect on macOS."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank() % len(cores)]})


if __name__ == "__main__":
    pin()
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
