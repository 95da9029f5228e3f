"""diloco.py: rows of every method, counted bytes and peaks, and bad input."""

from types import SimpleNamespace

import diloco
import pytest
from studies.diloco import training
from studies.diloco.training import Method, make_task, pretrain, train

from dml.data.text.generated import generate
from dml.types import BadInput
from tests.experiments.run_folder import read_rows

pytestmark = pytest.mark.usefixtures("quick")
SMALL = [
    "--vocabulary=300",
    "--length=8",
    "--batch=1",
    "--ranks=2",
    "--steps=8",
    "--pretraining=2",
]
ROWS = ["--periods=2,4", "--period=4", "--fragments=2", "--delays=0,1"]


@pytest.fixture(autouse=True)
def one_small_layer(monkeypatch):
    monkeypatch.setattr(training, "LAYERS", 1)
    monkeypatch.setattr(training, "WIDTH", 8)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(generate(300, 40, 0)))
    return f"--corpus={path}"


def test_a_row_for_each_method_has_its_bytes_peaks_and_a_loss(tmp_path, corpus):
    argv = [f"--out={tmp_path / 'run'}", corpus, *SMALL, *ROWS, "--reducers=qsgd:7"]
    summary = diloco.main(["diloco.py", *argv])
    rows = {row["name"]: row for row in read_rows(tmp_path / "run")}
    late = "diloco H=4 P=2 delay=1"
    names = "synchronous", "diloco H=2", "diloco H=4", "diloco H=4 qsgd:7"
    assert [*rows] == [*names, "diloco H=4 P=2", late]
    synchronous, often, rarely, coded, parts, delayed = rows.values()
    for row, period in ((often, 2), (rarely, 4)):
        ratio = synchronous["bytes_sent"] / row["bytes_sent"]
        assert ratio == pytest.approx(period, rel=0.01)
        assert row["peak_to_mean"] == pytest.approx(period)
        assert row["peak_bytes"] == pytest.approx(synchronous["peak_bytes"], rel=0.01)
    assert rarely["bytes_sent"] / coded["bytes_sent"] == pytest.approx(8, rel=0.05)
    for row in (parts, delayed):
        assert row["bytes_sent"] == rarely["bytes_sent"]
        assert row["peak_bytes"] == rarely["peak_bytes"] / 2
    for row in rows.values():
        assert 0 < row["loss"] < 6 and row["tokens"] == 8 * 2 * 8
        assert summary[f"{row['name']}_loss"] == row["loss"]
    assert (tmp_path / "run" / "loss.svg").exists()


def test_methods_continue_the_pretraining_with_its_moments_and_schedule(corpus):
    sizes = {"vocabulary": 300, "length": 8, "batch": 1, "ranks": 2, "lr": 0.01}
    long = SimpleNamespace(
        corpus=corpus.partition("=")[2], pretraining=0, steps=6, **sizes
    )
    short = SimpleNamespace(**vars(long) | {"pretraining": 3, "steps": 3})
    task = make_task(long)
    losses = [
        train(task, Method(), pretrain(task, 0, values), 0, values)["loss"]
        for values in (long, short)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(
    "argv, message",
    [
        ("--fragments=3", "divides the 4 updates"),
        ("--delays=2", "a delay of 0 to 1"),
        ("--delays=0.5", "whole numbers from 0 to 1000000 in --delays, got '0.5'"),
        ("--reducers=qsdg", "qsdg"),
        ("--periods=never", "periods"),
    ],
)
def test_bad_input_is_refused_before_a_training(argv, message, tmp_path, corpus):
    argv = [f"--out={tmp_path / 'run'}", corpus, *SMALL, *ROWS, argv]
    with pytest.raises(BadInput, match=message):
        diloco.main(["diloco.py", *argv])
