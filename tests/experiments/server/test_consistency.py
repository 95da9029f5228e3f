import consistency
import pytest

from tests.commands import PYTHON, command
from tests.experiments.run_folder import check_folder, read_rows

SMALL = ["--problem=generated", "--clocks=12", "--batch=512", "--snapshots=3"]
FEW = "--consistency=bsp,ssp:0,ssp:4,essp:4,async,softsync:2,backup:1"
EVEN, LATE = "constant:1", "shifted_exponential:1,1"


def run(out, *argv):
    given = [f"--out={out}", *SMALL, "--simulate=6", *argv]
    summary = consistency.main(["consistency.py", *given])[0]
    return summary, read_rows(out)


def test_every_consistency_is_compared_under_every_delay(tmp_path, capsys, undrawn):
    summary, rows = run(tmp_path, FEW, f"--laws={EVEN};{LATE}")
    names = FEW.partition("=")[2].split(",")
    assert [(row["delay"], row["consistency"]) for row in rows] == [
        (law, name) for law in (EVEN, LATE) for name in names
    ]
    check_folder(tmp_path, summary)
    ends = [f"{law}: essp:4 " for law in (EVEN, LATE)]
    out = capsys.readouterr().out.splitlines()
    assert any(all(end in line for end in ends) for line in out)
    of = {(row["delay"], row["consistency"]): row for row in rows}
    for law in (EVEN, LATE):
        in_step, bounded = of[law, "bsp"], of[law, "ssp:0"]
        assert in_step["objective"] == bounded["objective"]
        assert in_step["seconds"] == pytest.approx(bounded["seconds"], rel=1e-3)
        assert in_step["updates"] == 12 and in_step["staleness_max"] == 0
        assert of[law, "async"]["updates"] == 12 * 5
        assert of[law, "essp:4"]["staleness_mean"] < of[law, "ssp:4"]["staleness_mean"]
        assert of[law, "softsync:2"]["updates"] == 12 * 5 // 2
    assert of[EVEN, "bsp"]["objective"] == of[LATE, "bsp"]["objective"]
    idle = [of[LATE, name]["idle_share"] for name in ("bsp", "ssp:4", "async")]
    assert idle[0] > 0.2 > 0.02 > max(idle[1:])
    late = [of[LATE, name]["seconds"] for name in ("bsp", "backup:1", "async")]
    assert late[0] > late[1] > late[2]
    assert of[LATE, "backup:1"]["late"] > 0


def test_the_target_is_near_the_first_ones_end_if_none_is_given(tmp_path, undrawn):
    argv = ["--consistency=bsp", f"--laws={EVEN}", "--network=0,0,0", "--batch=500"]
    (row,) = run(tmp_path / "a", *argv)[1]
    assert 0 < row["seconds_to_target"] <= row["seconds"] == 12
    (row,) = run(tmp_path / "b", *argv, "--target=0.01")[1]
    assert row["seconds_to_target"] is None
    (row,) = run(tmp_path / "c", *argv, "--target=99")[1]
    assert row["seconds_to_target"] == 0


@pytest.mark.mpi
def test_real_ranks_sleep_and_learn_the_same_in_step(tmp_path, undrawn):
    argv = ["--consistency=bsp,essp:2", f"--laws={EVEN}"]
    _, virtual = run(tmp_path / "virtual", *argv, "--simulate=3")
    start = ["mpirun", "-n", "3", PYTHON, "experiments/consistency.py", *SMALL, *argv]
    done = command(*start, f"--out={tmp_path / 'real'}", "--scale=0.004")
    assert done.returncode == 0, done.stderr
    real = read_rows(tmp_path / "real")
    assert real[0]["objective"] == virtual[0]["objective"]
    assert [row["gradients"] for row in real] == [12 * 2] * 2
    assert real[0]["seconds"] >= 12
    assert (tmp_path / "real" / "objective_bounded.svg").exists()
