"""Runs that go on: bit for bit as if they had never stopped, or one clear line."""

import glove
import pytest

from dml.runs import checkpoints, results
from dml.types import BadInput
from tests.experiments.conftest import SMALL
from tests.experiments.run_folder import read_rows, read_summary

SAME = ["--simulate=2", "--batch=64"]
WAYS = {  # flags of the first two epochs, of the other two
    "rotation": ([], []),
    "rotation on other ranks": (["--simulate=2"], ["--simulate=8"]),
    "rotation by the other medium": (
        ["--simulate=3", "--medium=messages"],
        ["--simulate=3", "--medium=memory"],
    ),
    "one table": (["--tables=1"], ["--tables=1"]),
    "serial": (["--strategy=serial"], ["--strategy=serial"]),
    "hogwild": (["--strategy=hogwild"], ["--strategy=hogwild"]),
    "operation": (["--strategy=operation", *SAME],) * 2,
    "synchronous": (["--strategy=synchronous", *SAME],) * 2,
    "dense": (["--strategy=synchronous", *SAME, "--rows=dense"],) * 2,
    "mesh": (["--strategy=mesh"],) * 2,
    "server": (["--strategy=server", "--simulate=4", "--servers=2", "--batch=64"],) * 2,
    "colocated": (["--strategy=server", *SAME, "--colocated"],) * 2,
}


@pytest.mark.parametrize("before, after", WAYS.values(), ids=WAYS)
def test_two_epochs_and_two_more_are_four(train, tmp_path, before, after):
    whole = train(*after, "--epochs=4", out="whole")[0]
    train(*before, "--epochs=2", out="half")
    rest = train(*after, "--epochs=4", f"--resume={tmp_path / 'half'}", out="rest")[0]
    assert rest["vectors_sha256"] == whole["vectors_sha256"]
    assert (rest["loss"], rest["epochs"]) == (whole["loss"], 4)
    assert rest["steps"] == whole["steps"] >= 4
    assert rest["examples"] == 2 * rest["records"]  # what this run did itself
    losses = [row["loss"] for row in read_rows(tmp_path / "whole")]
    assert losses[3] < losses[2] < losses[1] < losses[0] and len(losses) == 4
    records = 3134 if "--tables=1" in after else 3183  # without the diagonal
    assert (whole["records"], whole["examples"]) == (records, 4 * records)
    for name in ("parameters.bin", "squares.bin"):
        ends = [(tmp_path / out / name).read_bytes() for out in ("whole", "rest")]
        assert ends[0] == ends[1]


@pytest.mark.parametrize(
    "flag",
    ["--dim=9", "--seed=1", "--tables=1", "--lr=0.1", "--blocks=4", "--window=4"]
    + ["--strategy=serial", "--x_max=11.0", "--min_count=2"],
)
def test_other_flags_are_named(train, tmp_path, flag):
    train()
    name, value = flag.split("=")
    with pytest.raises(BadInput, match=f"expected {name}=.* as in .* got {name}=") as e:
        train("--epochs=4", f"--resume={tmp_path / 'run'}", flag, out="new")
    assert f"got {name}={value};" in str(e.value)
    assert not (tmp_path / "new").exists()


def test_another_text_and_too_few_epochs_are_named(train, corpus, tmp_path):
    train()
    with pytest.raises(BadInput, match="more epochs than the 2 of the run .* larger"):
        train("--epochs=2", f"--resume={tmp_path / 'run'}")
    with open(corpus, "a") as file:
        file.write("\nw1 new words\n")
    with pytest.raises(BadInput, match="expected words=60 as in .* got words=62"):
        train("--epochs=4", f"--resume={tmp_path / 'run'}")
    other = tmp_path / "other.txt"
    other.write_text(corpus.read_text())
    with pytest.raises(BadInput, match="got --corpus=.*other.txt"):
        train("--epochs=4", f"--resume={tmp_path / 'run'}", f"--corpus={other}")


@pytest.mark.parametrize("strategy", ["serial", "mesh"])
def test_a_run_that_ends_before_its_summary_is_finished(train, tmp_path, strategy):
    whole = train(f"--strategy={strategy}")[0]
    (tmp_path / "run" / "summary.json").unlink()
    rows = (tmp_path / "run" / "metrics.jsonl").read_text()
    other = train(f"--strategy={strategy}", f"--resume={tmp_path / 'run'}", out="x")
    assert other[0]["loss"] == whole["loss"]
    again = train(f"--strategy={strategy}", f"--resume={tmp_path / 'run'}")[0]
    for name in ("loss", "epochs", "steps", "vectors_sha256"):
        assert again[name] == whole[name]
    assert (again["examples"], again["seconds"]) == (0, 0)
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == rows
    assert (tmp_path / "run" / "summary.json").exists()


def test_what_diverges_keeps_its_last_checkpoint(train, tmp_path):
    argv = ["--lr=1e7"]  # steps so large that they overflow after some epochs
    with pytest.raises(
        FloatingPointError, match="expected a finite loss, got .* lower"
    ):
        train(*argv, "--epochs=9")
    newest, *_ = checkpoints.paths(tmp_path / "run/checkpoints")
    assert checkpoints.number(newest) == len(read_rows(tmp_path / "run")) >= 1
    summary = read_summary(tmp_path / "run")
    assert summary["status"] == "failed"
    assert "expected a finite loss" in summary["error"]


def test_a_changed_checkpoint_is_not_resumed_and_the_one_before_is(
    train, tmp_path, capsys
):
    whole = train("--epochs=3")[0]
    path = tmp_path / "run/checkpoints/epoch-3.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    again = train("--epochs=3", f"--resume={tmp_path / 'run'}", out="again")[0]
    assert again["vectors_sha256"] == whole["vectors_sha256"]
    assert again["examples"] == again["records"]  # one epoch
    assert "epoch-3.npz is not what was saved; resuming from" in capsys.readouterr().err


def test_resume_takes_the_flags_of_the_run(corpus, tmp_path):
    """Only --epochs is given; --seed is refused, as it changes the results."""
    out, flags = tmp_path / "run", [f"--corpus={corpus}", *SMALL, "--timeline=0"]
    for name, epochs in (("whole", 3), ("run", 2)):
        argv = [*flags, f"--epochs={epochs}", "--seed=4", f"--out={tmp_path / name}"]
        glove.main(["glove.py", *argv])
    (summary,) = glove.main(["glove.py", f"--resume={out}", "--epochs=3"])
    assert (
        summary["vectors_sha256"] == read_summary(tmp_path / "whole")["vectors_sha256"]
    )
    kept = results.read(out).flags
    assert (kept["dim"], kept["seed"], kept["epochs"]) == (8, 4, 3)
    with pytest.raises(BadInput, match="expected --seed=4 as in .*, got --seed=0"):
        glove.main(["glove.py", f"--resume={out}", "--epochs=4", "--seed=0"])
    with pytest.raises(BadInput, match="the run is complete: pass a larger --epochs"):
        glove.main(["glove.py", f"--resume={out}"])


def test_a_used_folder_is_refused_unless_its_run_is_overwritten(train, tmp_path):
    train()
    used = {path: path.read_bytes() for path in (tmp_path / "run").glob("*.*")}
    with pytest.raises(BadInput, match="run that is done; pass --resume=.*--overwrite"):
        train(overwrite=False)
    assert used == {path: path.read_bytes() for path in used}
    (tmp_path / "run" / "notes.txt").write_text("mine")
    train("--overwrite", "--epochs=1", "--seed=1")
    assert [row["epoch"] for row in read_rows(tmp_path / "run")] == [1]
    assert [*(tmp_path / "run/checkpoints").iterdir()] == [
        tmp_path / "run/checkpoints/epoch-1.npz"
    ]
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
    with pytest.raises(BadInput, match="expected --resume or --overwrite, got both"):
        train("--overwrite", f"--resume={tmp_path / 'run'}")
