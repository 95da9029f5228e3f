import math

import asynchrony
import numpy as np
import pytest

from tests.experiments.run_folder import check_folder, read_rows

SMALL = ["--problems=20,2", "--features=40", "--examples=300", "--epochs=2"]
FEW = ["--rates=0.05,0.8", "--delays=200"]


def run(out, *argv):
    (summary,) = asynchrony.main(["asynchrony.py", f"--out={out}", *SMALL, *FEW, *argv])
    return summary, read_rows(out)


def test_a_run_leaves_a_table_a_verdict_and_a_figure(tmp_path, capsys):
    summary, rows = run(tmp_path)
    check_folder(tmp_path, summary, "asynchrony.svg", "asynchrony.png")
    assert " of 2 published results hold" in capsys.readouterr().out
    assert [row["problem"] for row in rows] == ["2"] * 4 + ["20"] * 4  # sparse first
    worst = max(rows, key=lambda row: row["ratio"])
    assert (worst["problem"], worst["rate"], worst["tau"]) == ("20", 0.8, 200)
    assert summary["tolerated_2_0.05"] == 200 and summary["tolerated_20_0.8"] == 0
    assert summary["error_20_0.8_200"] == worst["error"]


def test_a_delay_is_the_laws_times_tau(tmp_path, undrawn):
    drawn = ["--problems=2", "--law=lognormal:1,0.5", "--delays=4,8", "--rates=0.1"]
    _, few, many = run(tmp_path / "whole", *drawn)[1]
    _, each, _ = run(tmp_path / "each", *drawn, "--per_coordinate")[1]
    late = math.exp(0.5**2 / 2)
    assert few["delay_mean"] == pytest.approx(4 * late - 0.5, rel=0.1)  # rounded down
    assert many["delay_mean"] == pytest.approx(8 * late - 0.5, rel=0.1)
    assert each["delay_mean"] != few["delay_mean"]
    assert each["error"] != few["error"]


def test_overlap_is_the_mean_product_of_two_examples():
    asynchrony.flags.parse(asynchrony.FLAGS, ["", *SMALL])
    batch = asynchrony.problem("20")
    dense_ExT = batch.inputs.toarray()
    np.testing.assert_allclose((dense_ExT**2).sum(axis=1), 1, rtol=1e-6)
    products_ExE = dense_ExT @ dense_ExT.T
    assert asynchrony.overlap(batch) == pytest.approx(products_ExE.mean(), rel=1e-5)
