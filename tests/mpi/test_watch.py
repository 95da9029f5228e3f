"""Real ranks that stop: a table names them, and all ranks exit."""

import subprocess
import sys
from pathlib import Path

from dml.wire.comm.watch import EX_TEMPFAIL
from tests.commands import HUNG
from tests.mpi.conftest import OPEN_MPI

ROOT = Path(__file__).parents[2]
KILLED = 9  # code of mpirun if it kills a rank between the exits of the others


def rows(text):
    """Return what the table says of each rank: its step, the rest of the line."""
    lines = text.splitlines()[2:]
    cells = [line.split(maxsplit=4) for line in lines]
    return [(int(step), rest) for _, _, step, _, rest in cells]


def test_ranks_leave_a_watch_at_their_own_times(mpirun):
    assert mpirun(3, "watch_main", "well") == (0, "all have left\n", "", 0)


def test_a_rank_in_another_branch_is_shown_with_its_call_and_peer(mpirun, tmp_path):
    ended = mpirun(3, "watch_main", "in_another_branch", tmp_path / "table")
    assert ended.code in (EX_TEMPFAIL, KILLED)
    text = (tmp_path / "table").read_text()
    assert text in ended.err if OPEN_MPI else text == ended.err
    assert text.startswith("dml.watch: no step for ")
    barrier, other, left = rows(text)
    assert (barrier[0], left) == (3, (3, "left by ValueError"))
    call = "comm.recv(source=(comm.rank + 1) % comm.size, tag=number)"
    assert other[1].startswith(call) and other[1].endswith(" rank 2")
    assert barrier[1].startswith("comm.Barrier()") and barrier[1].endswith(" ranks 1-2")


def test_a_rank_that_sleeps_in_a_compiled_step_is_shown(mpirun, tmp_path):
    ended = mpirun(2, "watch_main", "in_a_compiled_step", tmp_path / "table")
    assert ended.code in (76, KILLED)
    waits, sleeps = rows((tmp_path / "table").read_text())
    assert sleeps[1].startswith("time.sleep(600)  watch_main.py:")
    assert waits[1].startswith("comm.recv(source=1)") and waits[1].endswith(" rank 1")


def test_a_process_that_has_died_is_shown_and_one_that_never_reported():
    command = [sys.executable, "-m", "tests.mpi.watch_main", "apart"]
    ranks, address = [], ""
    for rank in range(3):
        process = subprocess.Popen(
            [*command, str(rank), address or "127.0.0.1:0"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        ranks.append(process)
        address = address or process.stdout.readline().strip()
    assert ranks[0].stdout.readline() == "all report\n"
    ranks[1].kill()
    errors = [process.communicate(timeout=HUNG)[1] for process in ranks]
    codes = [process.returncode for process in ranks]
    assert codes == [EX_TEMPFAIL, -9, EX_TEMPFAIL]
    assert errors[1:] == ["", ""]
    assert errors[0].startswith("dml.watch: a process has ended")
    naps, died, _, absent = errors[0].splitlines()[2:]
    assert "time.sleep(600)" in naps
    assert died.endswith("its process has ended")
    assert absent.split()[:2] == ["3", "0"]
