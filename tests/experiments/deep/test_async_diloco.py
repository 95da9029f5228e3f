"""async_diloco.py: rows of every method, equal updates, virtual seconds."""

import async_diloco
import pytest
from studies.decentralised.async_training import METHODS

from tests.experiments.run_folder import read_rows

SMALL = ["--phases=3", "--period=4", "--batch=4", "--examples=200", "--features=8"]
SMALL += ["--width=8", "--points=4", "--lr=0.01", "--speeds=1,1,4"]


def test_a_row_for_each_method_has_equal_updates_and_its_virtual_seconds(tmp_path):
    argv = ["async_diloco.py", f"--out={tmp_path}", *SMALL]
    summary = async_diloco.main(argv)
    rows = {row["method"]: row for row in read_rows(tmp_path)}
    assert rows.keys() == METHODS.keys()
    for name, row in rows.items():
        assert row["updates"] == pytest.approx(36, abs=1)
        assert summary[f"{name}_loss"] == row["loss"] == row["curve"][-1][2]
        seconds, updates, *_ = zip(*row["curve"], strict=True)
        assert list(seconds) == sorted(seconds) and list(updates) == sorted(updates)
    assert rows["synchronous"]["seconds"] == pytest.approx(3 * 4 * 4, rel=1e-3)
    assert rows["synchronous"]["reached"] is not None
    # 36 updates of 2.25 per second, and the last task of the slow worker
    for name in ("nesterov", "sgd", "delayed_nesterov", "dynamic"):
        assert 16 <= rows[name]["seconds"] <= 32 + 1
    assert rows["ad_psgd"]["seconds"] == pytest.approx(16, rel=0.01)
    assert rows["nesterov"]["loss"] != rows["delayed_nesterov"]["loss"]
    assert (tmp_path / "loss.svg").exists()
