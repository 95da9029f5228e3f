"""What clusters read: scripts by shellcheck, YAML by its schema, Slurm's by fakes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "launch"
JOB = yaml.safe_load((LAUNCH / "mpijob.yaml").read_text())
SCHEMA = json.loads(Path(__file__).with_name("mpijob.schema.json").read_text())

# One that says what it was called with, and waits to be told to end where WAIT is set.
SRUN = """#!/usr/bin/env bash
if [[ $1 == --mpi=list ]]; then
    printf '%s\\n' "plugin types are..." ${OFFERS-pmi2}
    exit
fi
echo "srun $*" >>"$FAKES/calls"
if [[ -n ${WAIT-} ]]; then
    trap 'exit 130' TERM
    echo $$ >"$FAKES/pid.half"
    mv "$FAKES/pid.half" "$FAKES/pid"
    while :; do sleep 0.02; done
fi
exit ${CODE:-0}
"""
SCONTROL = """#!/usr/bin/env bash
if [[ $1 == show ]]; then
    echo "JobId=7 JobState=${STATE:-RUNNING} Reason=None"
    exit
fi
echo "scontrol $*" >>"$FAKES/calls"
"""
LIBRARY = """import os
def Get_library_version():
    return os.environ.get("MPI", "MPICH Version: 5")
"""
SCANCEL = """#!/usr/bin/env bash
echo "scancel $*" >>"$FAKES/calls"
kill -TERM "$(cat "$FAKES/pid")"
"""


class Slurm:
    """The script as Slurm runs it: a copy elsewhere, with Slurm's variables."""

    def __init__(self, house):
        self.house = house
        house.write(house.bin / "srun", SRUN)
        house.write(house.bin / "scontrol", SCONTROL)
        house.write(house.bin / "scancel", SCANCEL)
        (house.bin / "mv").symlink_to(shutil.which("mv"))
        house.write(house.root / "launch/sweep.py", "import sys\nprint(sys.argv[1:])\n")
        house.write(house.fakes / "mpi4py/__init__.py", "class rc: pass\n")
        house.write(house.fakes / "mpi4py/MPI.py", LIBRARY)
        house.write(house.fakes / "spool/job", (LAUNCH / "slurm.sbatch").read_text())

    def start(self, *arguments, **env):
        slurm = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_JOB_NUM_NODES": "2"}
        slurm |= {"SLURM_SUBMIT_DIR": str(self.house.root), "SLURM_CPUS_ON_NODE": "8"}
        given = {"PATH": str(self.house.bin), "FAKES": str(self.house.fakes)}
        return subprocess.Popen(
            [self.house.fakes / "spool/job", *arguments],
            env={name: text for name, text in (given | slurm | env).items() if text},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments, **env):
        process = self.start(*arguments, **env)
        self.out, self.err = process.communicate(timeout=1200)
        return process.returncode

    @property
    def calls(self):
        log = self.house.fakes / "calls"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def slurm(house):
    return Slurm(house)


PMI2, PMIX, OWN = "--mpi=pmi2 ", "--mpi=pmix ", "--out=runs/echo/slurm-7"
GPUS = {"SLURM_GPUS_ON_NODE": "4"}
RANK_A_GPU = " --gpu-bind=none --ntasks=8 --ntasks-per-node=4 --overcommit"


@pytest.mark.parametrize(
    "env, saved, given, mpi, options, wanted",
    [
        ({}, "", "--a=b", PMI2, "", f"--a=b {OWN}"),
        # A restart goes on from the checkpoint that is there.
        ({"SLURM_RESTART_COUNT": "1"}, OWN, "", PMI2, "", OWN.replace("out", "resume")),
        # could not save: the first start is replaced
        ({"SLURM_RESTART_COUNT": "1"}, "", "", PMI2, "", f"--overwrite {OWN}"),
        ({}, "", "--overwrite", PMI2, "", f"--overwrite {OWN}"),
        (
            {"SLURM_RESTART_COUNT": "1"},
            OWN,
            "--overwrite",
            PMI2,
            "",
            OWN.replace("out", "resume"),
        ),
        ({}, OWN, "", PMI2, "", OWN),
        ({"SLURM_RESTART_COUNT": "2"}, "mine", "--out=mine", PMI2, "", "--resume=mine"),
        ({}, "mine", "--out=mine", PMI2, "", "--out=mine"),
        ({"SLURM_RESTART_COUNT": "1"}, "", "--resume=a", PMI2, "", "--resume=a"),
        # GPUs get a rank each, unless asked for otherwise, which sees them all.
        (GPUS | {"SLURM_NTASKS": ""}, "", "", PMI2, RANK_A_GPU, OWN),
        (GPUS | {"SLURM_NTASKS": "2"}, "", "", PMI2, " --gpu-bind=none", OWN),
        # srun uses a PMI that the MPI and Slurm both have.
        ({"OFFERS": "none pmix pmi2"}, "", "", PMI2, "", OWN),
        ({"OFFERS": "none pmix"}, "", "", PMIX, "", OWN),
        ({"MPI": "Open MPI v5", "OFFERS": "pmi2 pmix"}, "", "", PMIX, "", OWN),
        ({"MPI": "Open MPI v4", "OFFERS": "pmi2"}, "", "", PMI2, "", OWN),
        ({"SLURM_MPI_TYPE": "pmix_v4"}, "", "", "", "", OWN),  # srun reads it itself
    ],
)
def test_srun_is_called_once(slurm, env, saved, given, mpi, options, wanted):
    if saved:
        folder = slurm.house.root / saved.removeprefix("--out=")
        (folder / "checkpoints").mkdir(parents=True)
    code = slurm.run("experiments/echo.py", *given.split(), **env)
    assert code == 0, slurm.err
    (call,) = slurm.calls
    start, _, flags = call.partition(f" {slurm.house.root}/.venv/bin/python ")
    assert start == f"srun {mpi}--kill-on-bad-exit=1{options}"
    assert flags == f"experiments/echo.py {wanted}"
    if not env:
        assert "4 ranks on 2 nodes, 4 threads each" in slurm.err  # of 8 cores a node


@pytest.mark.parametrize(
    "code, state, again",
    [
        ("130", "RUNNING", True),  # asked to end, and saved
        ("130", "CANCELLED", False),  # by its user
        ("130", "COMPLETING", False),  # Slurm requeues it already
        ("0", "RUNNING", False),
        ("1", "RUNNING", False),
        ("143", "RUNNING", False),  # killed: nothing was saved
    ],
)
def test_only_a_job_that_has_saved_and_still_runs_is_requeued(
    slurm, code, state, again
):
    assert slurm.run("experiments/echo.py", CODE=code, STATE=state) == int(code)
    assert slurm.calls[1:] == ["scontrol requeue 7"] * again


@pytest.mark.parametrize(
    "state, calls",
    [
        ("RUNNING", ["scancel --signal=TERM 7", "scontrol requeue 7"]),
        ("COMPLETING", []),  # Slurm itself has told the ranks: once is enough
    ],
)
def test_the_signal_before_the_end_is_passed_on_to_the_ranks(slurm, state, calls):
    process = slurm.start("experiments/echo.py", WAIT="1", STATE=state)
    pid = slurm.house.fakes / "pid"
    while not pid.exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    if not calls:
        time.sleep(0.3)
        assert process.poll() is None
        os.kill(int(pid.read_text()), signal.SIGTERM)
    process.communicate(timeout=1200)
    assert process.returncode == 130
    assert slurm.calls[1:] == calls


def test_a_sweep_in_an_array_is_called_once_with_its_share(slurm):
    given = ["launch/sweep.py", "experiments/echo.py", "--lr=1,2", "--", "--n=3"]
    assert slurm.run(*given, SLURM_ARRAY_TASK_ID="3") == 0, slurm.err
    # --only before --, behind which all are the script's own
    assert slurm.out == f"{['--only=3', *given[1:]]}\n"
    assert slurm.calls == []


@pytest.mark.parametrize(
    "arguments, env, says",
    [
        ([], {}, "expected a script, got none"),
        (["no.py"], {}, "got 'no.py', which is no file"),
        (["--flag", "experiments/echo.py"], {}, "a script first, got '--flag'"),
        (["x.py"], {"SLURM_SUBMIT_DIR": "/"}, "expected a submission from the reposi"),
        (["experiments/echo.py"], {"OFFERS": "none"}, "expected Slurm with --mpi=pmi2"),
    ],
)
def test_a_bad_submission_is_one_line_and_code_2(slurm, arguments, env, says):
    assert slurm.run(*arguments, **env) == 2
    *before, last = slurm.err.splitlines()
    assert says in last
    assert not before or "OFFERS" in env  # after the lines of the set-up


def test_the_job_requests_a_signal_and_a_second_start_from_slurm():
    options = re.findall(r"^#SBATCH (\S+)", (LAUNCH / "slurm.sbatch").read_text(), re.M)
    assert {"--requeue", "--open-mode=append", "--signal=B:TERM@120"} <= {*options}


def test_scripts_pass_shellcheck():
    place = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    found = shutil.which("shellcheck", path=place)
    assert found, "expected shellcheck: pip install -e .[test]"
    scripts = [*LAUNCH.glob("*.sh"), LAUNCH / "slurm.sbatch", ROOT / ".ci/run"]
    assert len(scripts) >= 7
    command = [found, "--external-sources", *map(str, scripts)]
    subprocess.run(command, cwd=ROOT, check=True)


def test_the_job_is_one_of_the_operators_uses_its_slots_and_may_request_gpus():
    jsonschema.validate(JOB, SCHEMA)
    launcher, worker = (
        JOB["spec"]["mpiReplicaSpecs"][name] for name in ("Launcher", "Worker")
    )
    words = launcher["template"]["spec"]["containers"][0]["args"]
    slots = JOB["spec"]["slotsPerWorker"] * worker["replicas"]
    assert words[words.index("-n") + 1] == str(slots)
    assert (ROOT / words[words.index("python") + 1]).is_file()
    text = (LAUNCH / "mpijob.yaml").read_text()
    job = yaml.safe_load(text.replace("# nvidia.com/gpu", "nvidia.com/gpu"))
    jsonschema.validate(job, SCHEMA)
    assert job != JOB
