"""Commands that train edge by edge: what they leave, say and refuse."""

import completion
import dropout
import numpy as np
import pytest
import svm

from dml.data.sparse.svmlight import generate, write
from dml.types import BadInput
from tests.experiments.run_folder import check_folder, read_rows


def run(experiment, out, *argv):
    return experiment.main([experiment.__name__, f"--out={out}", *argv])[0]


FITTING = ("--mu=1e-3", "--lr=0.1", "--epochs=20")
SMALL = ("--data=generated", "--epochs=3", "--batch=64")


def test_a_classifier_learns_and_prints_how_sparse_its_data_are(tmp_path, capsys):
    given = ["--data=generated", *FITTING, "--threads=2", "--hubs=1"]
    summary = run(svm, tmp_path, *given)
    assert summary["accuracy"] > 0.8
    assert 0 <= summary["gap"] < 0.05
    assert summary["optimum"] <= summary["objective"]
    assert summary["omega"] == 10 and summary["edges"] == 4000
    assert summary["workers"] == 2 and 0 <= summary["lost_share"] < 0.5
    check_folder(tmp_path, summary)
    rows = read_rows(tmp_path)
    assert [row["epoch"] for row in rows] == list(range(1, 21))
    assert [row["step"] for row in rows] == list(range(4000, 80_001, 4000))
    assert (summary["steps"], summary["epochs"]) == (80_000, 20)
    assert np.load(tmp_path / "table.npy").shape == (1000,)
    assert (tmp_path / "objective.svg").stat().st_size > 0
    out = " ".join(capsys.readouterr().out.split())
    assert 0 < summary["component_16"] < summary["component_1024"] <= 1
    assert "largest component of a batch" in out
    assert "Ω = 10 rows" in out and "M updates/s by 2 workers" in out


@pytest.mark.parametrize("loss", ("hinge", "logistic"))
def test_cyclades_and_minibatches_are_the_same_on_any_workers(tmp_path, undrawn, loss):
    def table(updates, threads):
        given = f"--updates={updates}", f"--threads={threads}", f"--loss={loss}"
        given += "--hubs=0.02", "--lr=0.01", "--noreference", "--overwrite"
        run(svm, tmp_path, *SMALL, *given)
        return np.load(tmp_path / "table.npy")

    cyclades, minibatch = table("cyclades", 1), table("minibatch", 1)
    assert np.array_equal(cyclades, table("cyclades", 3))
    assert np.array_equal(minibatch, table("minibatch", 2))
    assert not np.array_equal(cyclades, minibatch)


def test_a_matrix_is_completed(tmp_path):
    summary = run(completion, tmp_path, "--data=generated", "--updates=locked")
    assert summary["gap"] < 0.1
    assert summary["rmse"] < 1.1
    assert summary["rows_lost"] == 0
    assert (tmp_path / "residuals.svg").stat().st_size > 0


def test_columns_of_factors_complete_a_matrix_and_take_no_momentum(tmp_path, undrawn):
    given = "--data=generated", "--updates=operation", "--epochs=15", "--decay=0.8"
    summary = run(completion, tmp_path, *given)
    assert summary["gap"] < 0.05 and summary["rmse"] < 0.75
    assert summary["steps"] == 15 * -(-summary["edges"] // 128)
    for flag in "--momentum=0.5", "--threads=2":
        with pytest.raises(BadInput, match=f"{flag[2:6]}.* with --updates=operation"):
            run(completion, tmp_path / flag, *given, flag)


def test_float64_and_momentum_are_taken(tmp_path, undrawn):
    given = ["--dtype=float64", "--momentum=0.5", "--lr=0.1", "--noreference"]
    given.append("--nolost")
    summary = run(svm, tmp_path, *SMALL, *given)
    assert np.load(tmp_path / "table.npy").dtype == np.float64
    assert "rows_lost" not in summary and "optimum" not in summary


def test_units_that_are_kept_learn_digits(tmp_path, undrawn):
    given = ["--masks=1", "--epochs=8", "--hidden=32", "--keep=0.5", "--noreference"]
    summary = run(dropout, tmp_path, "--updates=atomic", *given)
    assert summary["accuracy"] > 0.5
    assert summary["rows_lost"] == 0


def test_a_file_of_labels_0_and_1_is_learned(tmp_path, undrawn):
    batch = generate(200, 30, 5, 1)
    zeros = batch._replace(targets=(batch.targets + 1) / 2)
    write(tmp_path / "data.svm", zeros)
    summary = run(svm, tmp_path, f"--data={tmp_path / 'data.svm'}", "--batch=16")
    assert summary["edges"] == 160 and summary["accuracy"] > 0.7


def test_examples_of_a_chosen_structure_are_generated(tmp_path, undrawn):
    given = ["--data=generated:8,0.05,0.2", "--epochs=2", "--noreference"]
    summary = run(svm, tmp_path, *given)
    assert summary["omega"] == 8
    # a fifth of the examples is held out, so both are near
    assert abs(summary["delta"] / 0.05 - 1) < 0.2
    assert abs(summary["rho"] / 0.2 - 1) < 0.2


def lines(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return f"--data={path}"


@pytest.mark.parametrize(
    "text, message",
    [
        (("1 1:2", "-1 2:x"), "line 2: expected .* got '-1 2:x'"),
        (("1 1:2", "2 2:1", "1 1:1"), "line 2"),
        (
            ("1 1:2", "1 2:1", "1 1:1"),
            r"training examples of both labels, got only \[1.0\]",
        ),
        (("1", "-1", "1", "-1"), "without rows; pass examples that have features"),
    ],
)
def test_a_bad_line_of_documents_is_named(tmp_path, undrawn, text, message):
    with pytest.raises(BadInput, match=message) as error:
        run(svm, tmp_path, lines(tmp_path / "bad.svm", *text))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "argv, message",
    [
        (
            ["--updates=serial", "--threads=2"],
            "one worker with --updates=serial, got 2",
        ),
        (["--threads=9", "--batch=64"], "at most 4 workers for 4 examples, got 9"),
        (["--batch=5"], "batch of 1 to 4 examples, got 5"),
        (
            ["--data=generated:8,0.05"],
            "got .generated:8,0.05.: Ω,Δ,ρ are three numbers such as",
        ),
        (["--momentum=1"], "momentum below 1, got 1"),
        (["--lr=1e9", "--batch=2"], "lower --mu or --lr|--lr and --mu"),
    ],
)
def test_bad_flags_are_one_line(tmp_path, undrawn, argv, message):
    given = lines(tmp_path / "few.svm", *4 * ["1 1:2 2:1"], "-1 2:1")
    with pytest.raises(BadInput, match=message) as error:
        run(svm, tmp_path, given, *argv)
    assert "\n" not in str(error.value)
