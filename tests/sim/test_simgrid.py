"""The same all-reduce on the same platform in SimGrid: the difference is none.

Where Debian's python3-simgrid is there; its TCP corrections are off.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dml import sim
from dml.wire.collectives import ALLREDUCE

SCRIPT = Path(__file__).parent / "simgrid_main.py"


@pytest.fixture(scope="module")
def python():
    """A Python that has SimGrid: this one, or the system's."""
    for place in (sys.executable, shutil.which("python3", path=os.defpath)):
        asked = [place or "false", "-c", "import simgrid"]
        if not subprocess.run(asked, capture_output=True, timeout=1200).returncode:
            return place
    pytest.skip("no python3-simgrid is here")


@pytest.mark.parametrize(
    "size, length, rates",
    [
        (2, 1000, (1e-5, 1e-9, 1e-10)),
        (8, 200_000, (1e-5, 1e-9, 1e-10)),
        (7, 70_000, (1e-4, 1e-8, 0.0)),
        (33, 33_000, (0.0, 1e-9, 1e-9)),
    ],
)
def test_simgrid_ends_the_ring_at_the_same_times(python, size, length, rates):
    def program(comm):
        ALLREDUCE["ring"](comm, np.zeros(length, np.float32), segment=1 << 30)
        return comm.Wtime()

    ours = sim.run(program, size, sim.Uniform(*rates, eager=1 << 30))
    command = [python, SCRIPT, *map(str, (size, 4 * length, *rates))]
    theirs = json.loads(subprocess.check_output(command, timeout=1200).splitlines()[-1])
    assert theirs == pytest.approx(ours, rel=1e-9, abs=0)
