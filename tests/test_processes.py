"""Children of a killed command, and commands whose output is closed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Starts two ranks that never end, as the experiments start theirs.
PARENT = """
import subprocess, sys
sys.path.insert(0, "experiments")
from lab import started
rank = "import time; print('started', flush=True); time.sleep(3600)"
subprocess.run([*started.python(2), "-c", rank], env=started.environment())
"""


@pytest.mark.mpi
@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_ranks_end_when_the_command_that_started_them_is_killed(end):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], cwd=ROOT, text=True, stdout=subprocess.PIPE
    )
    first_line = parent.stdout.readline()
    getattr(parent, end)()
    parent.communicate(timeout=1200)  # until all processes have closed the pipe
    assert "started" in first_line


@pytest.mark.parametrize(
    "command",
    [
        ["experiments/linear.py", "--steps=20"],  # lines of rich
        ["experiments/topology.py", "--p=16"],  # lines of a table
        ["-m", "dml.conformance", "ring", "--ranks=0"],
    ],
)
def test_a_command_ends_without_a_message_when_its_output_is_closed(command, tmp_path):
    out = [] if "dml.conformance" in command else [f"--out={tmp_path}"]
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, *command, *out],
        cwd=ROOT,
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=1200,
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")
