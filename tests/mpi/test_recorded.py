"""Runs of real ranks are replayed on virtual ones, and the reverse; --record too."""

import pytest

from dml import sim
from dml.runs import records
from dml.wire.comm import Log, Recorded, Replayed
from tests.mpi import recording_command
from tests.mpi.recorded_main import CONFIG, PROGRAMS


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run"


@pytest.mark.parametrize("which, size", [("served", 3), ("played", 3)])
def test_real_ranks_repeat_a_run_of_virtual_ones(mpirun, path, which, size):
    logs, network = [Log() for _ in range(size)], sim.Uniform(alpha=3e-5, eager=400)

    def program(comm):
        return PROGRAMS[which](Recorded(comm, logs[comm.rank]))

    found = sim.run(program, size, network)
    records.write(path, CONFIG, [log.codes() for log in logs])
    ended = mpirun(size, "recorded_main", "replay", which, path)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == found


def test_virtual_ranks_repeat_a_run_of_real_ones(mpirun, path):
    ended = mpirun(3, "recorded_main", "record", "served", path)
    assert (ended.code, ended.err) == (0, "")
    record = records.read(path)

    def program(comm):
        log = Log(record.ranks[comm.rank])
        found = PROGRAMS["served"](Replayed(comm, log))
        log.finish()
        return found

    assert sim.run(program, 3) == ended.out.splitlines()


def test_the_message_that_cut_off_computing_on_real_ranks_is_recorded(mpirun, path):
    ended = mpirun(2, "recorded_main", "record", "told_once", path)
    assert (ended.code, ended.err, ended.out) == (0, "", "True\nTrue")


def test_a_command_repeats_its_record_on_virtual_ranks(mpirun, path):
    ended = mpirun(3, "recording_command", f"--record={path}")
    assert (ended.code, ended.err) == (0, "")
    again = recording_command.main(["x", "--simulate=3", f"--replay={path}"])
    assert again[0] == ended.out.splitlines()[-1]  # after progress, on a slow machine


@pytest.mark.parametrize(
    "change, message",
    [
        ("flags", "expected --seed=0 as recorded in"),
        ("file", "bytes after its first line, got"),
        ("events", "rank 1, event 1: expected note of 0, got note of 1; replay"),
    ],
)
def test_what_cannot_be_replayed_ends_all(mpirun, path, monkeypatch, change, message):
    recording_command.main(["x", "--simulate=2", f"--record={path}"])
    seed = int(change == "flags")
    if change == "file":
        path.write_bytes(path.read_bytes()[:-1])
    if change == "events":
        monkeypatch.setenv("WRONG", "1")
    command = "recording_command", f"--replay={path}", f"--seed={seed}"
    ended = mpirun(2, *command)
    # one line if ranks end within 2 s; mpirun may report the ranks that it killed
    lines = [line for line in ended.err.splitlines() if message in line]
    assert 1 <= len(lines) <= 2 and ended.code in (2, 9)
    assert "Traceback" not in ended.err
