"""--record and --replay of a command on real ranks, well or not well."""

import pytest

from tests.mpi import recording_command


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run"
    recording_command.main(["x", "--simulate=3", f"--record={path}"])
    return path


def test_a_command_repeats_its_record_on_virtual_ranks(mpirun, tmp_path):
    path = tmp_path / "run"
    ended = mpirun(3, "recording_command", f"--record={path}", timeout=30)
    assert (ended.code, ended.err) == (0, "")
    again = recording_command.main(["x", "--simulate=3", f"--replay={path}"])
    assert again[0] == ended.out


def test_other_flags_are_one_line_and_code_2(mpirun, file):
    ended = mpirun(3, "recording_command", f"--replay={file}", "--seed=1", timeout=20)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "expected --seed=0 as recorded in" in ended.err


def test_a_record_that_is_cut_off_is_one_line_and_code_2(mpirun, file):
    file.write_bytes(file.read_bytes()[:-1])
    ended = mpirun(3, "recording_command", f"--replay={file}", timeout=20)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "bytes after its first line, got" in ended.err


def test_a_rank_that_differs_from_its_record_ends_all(mpirun, file, monkeypatch):
    monkeypatch.setenv("WRONG", "1")
    ended = mpirun(3, "recording_command", f"--replay={file}", timeout=20)
    assert ended.code in (2, 9)  # mpirun may report the ranks that it killed
    assert "rank 1, event 1: expected 0 noted, got 1 noted; replay" in ended.err
