"""rl.py: every algorithm, replays of real ranks, deaths, resumes, learning."""

import json
import subprocess

import pytest
import rl
from lab import started
from studies.rl.training import until

from dml import sim
from dml.types import BadInput
from tests.commands import ROOT

LENGTH = "--length=5"
SMALL = ["--environment=catch", "--widths=8", "--copies=2", LENGTH]
SMALL += ["--updates=12", "--evaluate_every=6"]


@pytest.fixture
def train(tmp_path, undrawn):
    """Return train(*flags, out) -> summary of rank 0, rows."""

    def run(*argv, out="run"):
        path, small = tmp_path / out, list(SMALL)
        if "--algorithm=a3c" in argv:
            small.remove(LENGTH)
        new = [] if any("--resume" in flag for flag in argv) else ["--overwrite"]
        summary = rl.main(["rl.py", *small, *argv, *new, f"--out={path}"])[0]
        lines = (path / "metrics.jsonl").read_text().splitlines()
        return summary, [json.loads(line) for line in lines]

    return run


OTHERS = (
    *(("apex", "correction=none"), ("a3c", "batch=2"), ("seed", "replays=2")),
    ("a3c", "save_every=1"),
)


@pytest.mark.parametrize(("name", "flag"), OTHERS)
def test_flags_of_other_algorithms_are_bad_input(train, name, flag):
    read = flag.partition("=")[0]
    with pytest.raises(BadInput, match=f"with --{read}=.*={name}; leave --{read}"):
        train("--simulate=4", f"--algorithm={name}", f"--{flag}")


@pytest.mark.parametrize("name", rl.ALGORITHMS)
def test_every_algorithm_reports_returns_lag_frames_and_words(train, tmp_path, name):
    summary, rows = train("--simulate=4", f"--algorithm={name}")
    assert {"mean_return", "sha256", "solved_seconds"} <= summary.keys()
    assert -1 <= summary["mean_return"] <= 1
    assert 0 <= summary["lag_mean"] <= summary["lag_max"]
    assert summary["frames"] == sum(row["frames"] for row in rows) > 0
    assert sum("mean_return" in row for row in rows) == 2
    if name == "a3c":
        assert summary["frames"] == 12 * 3 * 2 * 9  # an episode of catch has 9 steps
        assert "environment_steps" not in summary
        assert sum(row["examples"] for row in rows) == 12 * 3 * 2
        with pytest.raises(BadInput, match="with --resume=.*, got --algorithm=a3c"):
            train("--simulate=4", "--algorithm=a3c", f"--resume={tmp_path / 'run'}")
        return
    assert 1 <= summary["environment_steps"] / summary["frames"] < 2  # with resets
    if name == "apex":
        assert summary["lag_max"] <= 12
    else:
        assert summary["words_sent"] == summary["predicted_words"]
        assert summary["lag_max"] <= 3


def test_three_learners_go_on_without_an_actor_that_dies(train):
    flags = ["--simulate=8", "--straggle=constant:1"]
    flags += ["--learners=3", "--batch=6", "--reduce=order_free"]
    whole, _ = train(*flags, "--elastic")
    assert train(*flags)[0]["sha256"] == whole["sha256"]
    fewer, rows = train(*flags, "--elastic", "--events=die:4@2.5")
    assert rows[-1]["step"] == 12 and fewer["sha256"] != whole["sha256"]


def test_a_run_resumes_from_its_checkpoint(train, tmp_path):
    train("--simulate=3", "--save_every=1e-9")
    resume = f"--resume={tmp_path / 'run'}"
    with pytest.raises(BadInput, match="expected more than the 12 updates"):
        rl.main(["rl.py", resume])
    summary, rows = train(resume, "--updates=15")
    assert [row["step"] for row in rows] == [*range(1, 16)]
    assert summary["frames"] == sum(row["frames"] for row in rows)
    assert rows[-1]["total_frames"] == summary["frames"]


@pytest.mark.mpi
def test_a_run_of_real_ranks_replays_bit_for_bit_on_virtual_ones(train, tmp_path):
    record, out = tmp_path / "run.record", tmp_path / "real"
    command = [*started.python(3), ROOT / "experiments/rl.py", *SMALL]
    command += [f"--record={record}", f"--out={out}"]
    done = subprocess.run(
        command,
        env=started.environment(),
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    real = json.loads((out / "summary.json").read_text())
    again, _ = train("--simulate=3", f"--replay={record}")
    names = "sha256", "mean_return", "lag_mean", "frames", "words_sent"
    assert all(real[name] == again[name] for name in names)


def test_steps_end_on_all_ranks_when_a_rank_is_done():
    def program(comm):
        taken = []
        done = lambda: comm.rank == 1 and len(taken) > 3  # noqa: E731
        for number in until(iter(range(9)), comm, done):
            taken.append(number)
        return taken

    assert sim.run(program, 3) == [[0, 1, 2, 3]] * 3
