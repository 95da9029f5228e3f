import json

import linear
import pytest

from dml.types import BadInput


def run(out, *argv):
    return linear.main(["linear.py", f"--out={out}", "--steps=30", *argv])


def losses(out):
    rows = (out / "metrics.jsonl").read_text().splitlines()
    return [json.loads(row)["loss"] for row in rows]


def test_one_rank_is_serial_real_or_virtual(tmp_path):
    ways = {
        "serial": ["--strategy=serial"],
        "real": ["--strategy=synchronous"],
        "virtual": ["--simulate=1"],
    }
    found = {way: run(tmp_path / way, *argv)[0] for way, argv in ways.items()}
    assert len({summary["sha256"] for summary in found.values()}) == 1
    assert losses(tmp_path / "serial") == losses(tmp_path / "real")
    assert losses(tmp_path / "serial") == losses(tmp_path / "virtual")
    assert found["serial"]["accuracy"] > 0.8


@pytest.mark.parametrize("allreduce", linear.ALLREDUCE)
def test_virtual_replicas_agree_by_any_allreduce(tmp_path, allreduce):
    argv = ["--simulate=3", f"--allreduce={allreduce}"]
    summaries = run(tmp_path, *argv)
    assert len(summaries) == 3
    assert len({summary["sha256"] for summary in summaries}) == 1
    assert summaries[0]["accuracy"] > 0.8


def test_a_run_leaves_its_folder_with_every_flag(tmp_path):
    (summary,) = run(tmp_path, "--optimizer=adam", "--seed=3")
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["config.json", "loss.png", "loss.svg"] + [
        "metrics.jsonl",
        "summary.json",
    ]
    flags = json.loads((tmp_path / "config.json").read_text())["flags"]
    assert (flags["optimizer"], flags["seed"], flags["steps"]) == ("adam", 3, 30)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary


@pytest.mark.parametrize(
    "argv, message",
    [
        (["--allreduce=rign"], "value should be one of <.*ring"),
        (["--optimizer=sdg"], "value should be one of <sgd"),
        (["--batch=2000"], "expected a batch of 1 to 1437 examples, got batch=2000"),
        (["--steps=0"], "--steps=0: 0 is not a positive integer"),
        (["--strategy=serial", "--simulate=2"], "expected one rank"),
        (["--simulate=2", "--network=fast"], "expected a network"),
    ],
)
def test_bad_input_is_named(tmp_path, argv, message):
    with pytest.raises(BadInput, match=message):
        run(tmp_path, *argv)
