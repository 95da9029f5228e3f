"""Runs that go on: bit for bit as if they had never stopped, or one clear line."""

import json

import pytest

from dml.types import BadInput
from tests.experiments.run_folder import read_rows

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
    ends = [tmp_path / out / "checkpoint" for out in ("whole", "rest")]
    for name in ("parameters-4.bin", "squares-4.bin"):
        assert len({(end / name).read_bytes() for end in ends}) == 1


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
    with pytest.raises(BadInput, match="more epochs than the 2 that are done, got"):
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
    index = json.loads((tmp_path / "run/checkpoint/checkpoint.json").read_text())
    assert index["epoch"] == len(read_rows(tmp_path / "run")) >= 1
    assert not (tmp_path / "run" / "summary.json").exists()
