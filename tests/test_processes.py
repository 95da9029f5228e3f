"""Children of a killed command, and commands whose output is closed."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from lab import started

from dml import processes
from dml.runs import results
from dml.types import BadInput
from tests.commands import COMPILED

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


COMMANDS = [
    ["experiments/linear.py", "--steps=2", "--timeline=0"],  # lines of rich
    ["experiments/pipeline_templates.py"],  # lines of a table
    ["-m", "dml.conformance", "--help"],
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_writes_its_results_without_a_reader_of_its_output(command, tmp_path):
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
    assert not out or results.folder_status(tmp_path) == "done"


TABLE = "experiments/pipeline_templates.py"
TRAINING = "experiments/vision.py --data=digits --model=mlp --steps=2 --save_every=1e-9"
TRAINING += " --timeline=0"
UNREADABLE = {  # command, shell redirections, variables, expected exit code
    "closed output": (TABLE, ">&-", {}, 0),
    "all closed": (TRAINING, "<&- >&- 2>&-", {}, 0),
    "a full disk": (TABLE, ">/dev/full", {}, 141),
    "ASCII": (TABLE, ">/dev/null", {"PYTHONIOENCODING": "ascii"}, 0),
    "the C locale": (
        TRAINING,
        ">/dev/null",
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        0,
    ),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_command_writes_its_results_whatever_its_output_is(name, tmp_path):
    script, redirections, variables, code = UNREADABLE[name]
    out = tmp_path / "ü"
    command = f"{sys.executable} {script} --out={out}"
    ended = subprocess.run(
        f"{command} {redirections}",
        shell=True,
        cwd=ROOT,
        env=os.environ | COMPILED | variables,
        stderr=subprocess.PIPE,
        timeout=1200,
    )
    assert (ended.returncode, ended.stderr) == (code, b"")
    assert results.folder_status(out) == "done"
    assert script == TABLE or (out / "checkpoints/step-2.npz").exists()


def test_a_file_is_not_opened_in_the_place_of_a_closed_stream():
    program = "from dml.processes import open_missing_streams as call; call()\n"
    program += "import sys; sys.exit(open('setup.cfg').fileno() < 3 or not sys.stdout)"
    command = [sys.executable, "-c", program]
    line = f"{shlex.join(command)} <&- >&- 2>&-"
    code = subprocess.run(line, shell=True, cwd=ROOT).returncode
    assert code == 0


IMPORTS = """
import signal, sys
from dml.processes import end_at_interrupt
sys.argv[0] = "experiments/vision.py"
# a shell that starts tests in the background ignores SIGINT, and so do its children
signal.signal(signal.SIGINT, signal.default_int_handler)
end_at_interrupt()
signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize("rank, line", [("0", "vision.py: stopped\n"), ("1", "")])
def test_a_command_that_is_stopped_during_imports_prints_one_line(rank, line):
    ended = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        cwd=ROOT,
        env=os.environ | {"PMI_RANK": rank},
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", line)


def test_settings_of_open_mpi_outlive_the_variables_of_an_outer_mpirun(monkeypatch):
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    environment = started.environment()
    assert environment["OMPI_ALLOW_RUN_AS_ROOT"] == "1"
    assert "OMPI_COMM_WORLD_RANK" not in environment


def test_without_mpi_the_message_has_both_ways_to_get_one(tmp_path, monkeypatch):
    python = tmp_path / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="launch/local.sh, .*or install a system"):
        processes.mpirun()
    for place in (tmp_path, python.parent):  # the one of the environment goes first
        place.mkdir(exist_ok=True)
        (place / "mpirun").touch(0o755)
        assert processes.mpirun() == str(place / "mpirun")
