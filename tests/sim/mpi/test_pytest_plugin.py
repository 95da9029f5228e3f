"""The plugin of pytest, on the file of a user."""

import subprocess
import sys
from pathlib import Path

FILE = """
import pytest

@pytest.mark.ranks([1, 2, 5], network="uniform")
@pytest.mark.parametrize("factor", [1, 10])
def test_sum(comm, MPI, factor):
    assert comm.allreduce(factor, MPI.SUM) == factor * comm.size

@pytest.mark.ranks(4)
def test_wrong(comm):
    assert comm.rank != 2

@pytest.mark.ranks(3)
def test_stuck(comm):
    if comm.rank:
        comm.recv(source=0)

@pytest.mark.ranks(2, faults="die:1@0")
def test_death(comm, MPI):
    with pytest.raises(MPI.Exception):
        comm.recv(source=1)

def test_plain():
    pass

def test_without_marker(comm):
    pass
"""


def test_a_marked_test_is_called_on_every_rank(tmp_path):
    (tmp_path / "test_user.py").write_text(FILE)
    command = [sys.executable, "-m", "pytest", "-p", "dml.pytest_plugin"]
    options = ["-p", "no:cacheprovider", "--strict-markers", "-v", "test_user.py"]
    done = subprocess.run(
        [*command, *options],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    out = done.stdout
    assert "test_sum[ranks=5-10] PASSED" in out or "test_sum[10-ranks=5] PASSED" in out
    assert "on virtual rank 2 of 4" in out
    assert "deadlock: 2 of 3 virtual ranks wait" in out
    assert "another exception occurred" not in out
    assert "recv(source=0" in out or "Irecv(source=0" in out
    assert "expected a test marked with @pytest.mark.ranks(N)" in out
    assert "8 passed, 2 failed, 1 error" in out or "2 failed, 8 passed, 1 error" in out


def test_the_plugin_imports_neither_numpy_nor_the_virtual_ranks():
    heavy = "{'numpy', 'dml.sim'} & {*sys.modules}"
    source = f"import dml.pytest_plugin, sys; assert not {heavy}"
    subprocess.run([sys.executable, "-c", source], check=True)
