"""Pipelines as nodes fail: rows, shares of microbatches, and the figure."""

import pipeline_templates
import pytest
from studies.pipeline.templates import facts

from tests.experiments.run_folder import check_folder, read_rows


def test_all_nodes_work_down_to_the_fewest(tmp_path):
    argv = ["--least=3", "--failures=1", "--nodes=12", f"--out={tmp_path}"]
    summary = pipeline_templates.main(["pipeline_templates.py", *argv])
    rows = read_rows(tmp_path)
    assert [row["nodes"] for row in rows] == list(range(12, 5, -1))
    for row in rows:
        assert sum(row["sizes"]) == row["nodes"] and sum(row["shares"]) == 96
        assert row["changed"] == sum(row["changed_pipelines"])
    assert (summary["least"], summary["most"]) == (3, 4)
    check_folder(tmp_path, summary, "templates.svg", "templates.png")


def test_an_update_takes_as_long_as_its_slowest_pipeline():
    row = facts([(0, 1, 2, 3), (4, 5)], 30)
    assert row["shares"] == [19, 11]
    assert row["slots"] == pytest.approx(max((19 + 3) / 4, (11 + 1) / 2))
    assert row["efficiency"] == pytest.approx(30 / (6 * 6))
