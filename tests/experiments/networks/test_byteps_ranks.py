import byteps
import pytest
from studies.byteps import rows

from dml.types import BadInput
from tests.commands import PYTHON, command
from tests.experiments.run_folder import check_folder, read_rows

SMALL = ["--size=64KB", "--segment=4KB", "--repeats=1", "--params=8KB"]


def test_virtual_ranks_take_the_predicted_seconds_and_have_serial_bits(tmp_path):
    flags = ["--simulate=5", "--spares=2", "--network=0,1e-9,0", *SMALL]
    summary, *_ = byteps.main(["byteps.py", *flags, f"--out={tmp_path}"])
    check_folder(tmp_path, summary)
    found = read_rows(tmp_path)
    worlds = [(2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2)]
    assert [(row["n"], row["k"]) for row in found] == worlds
    for row in found:
        assert row["exact"]
        assert row["seconds"] == pytest.approx(row["virtual_seconds"], rel=1e-9)
        assert 1 <= row["ratio"] < 1.3


@pytest.mark.mpi
def test_real_ranks_have_the_bits_of_a_serial_sum_and_of_separate_updates(tmp_path):
    flags = ["--spares=1", "--bandwidth=200", *SMALL, f"--out={tmp_path}"]
    argv = "mpirun", "-n", 3, PYTHON, "experiments/byteps.py", *flags
    ended = command(*argv)
    assert ended.returncode == 0, ended.stderr
    found = read_rows(tmp_path)
    tables = [row["table"] for row in found]
    assert tables == ["spares"] * 4 + ["sums"] + ["hub"] * 4
    assert {row["links"] for row in found[:4]} == {"throttled", "machine"}
    assert all(row["exact"] for row in found if "exact" in row)
    for row in found[:2]:  # throttled: never faster than the port
        assert row["seconds"] >= row["paper_seconds"]


@pytest.mark.parametrize("size, spares", [(4, 3), (3, 2), (2, 1), (1, 0)])
def test_spares_without_enough_workers_are_refused(size, spares):
    with pytest.raises(BadInput, match="expected --spares=0 to"):
        rows.worlds(size, spares)
