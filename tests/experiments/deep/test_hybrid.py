"""Every mesh learns the same, and one that cannot be is refused before any is tried."""

import hybrid
import pytest
from studies.deep import hybrid_report

from dml.figures import style
from dml.types import BadInput
from tests.experiments.run_folder import read_summary

pytestmark = pytest.mark.usefixtures("quick")
SMALL = "--steps=1 --batch=2 --microbatches=2 --blocks=1 --width=8 --heads=2"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DML_DATA", str(tmp_path / "cache"))


def main(folder, *more):
    (folder / "text.txt").write_text("what one part gives, the next one takes. " * 99)
    argv = f"{SMALL} --length=8 --vocabulary=300 --corpus={folder}/text.txt".split()
    return hybrid.main(["hybrid.py", f"--out={folder}/out", *argv, *more])


def test_a_mesh_learns_what_one_device_does(tmp_path):
    (summary,) = main(tmp_path)
    assert summary["verdict"] == "equal"
    assert read_summary(tmp_path / "out")["loss"] == summary["loss"]


def test_the_figure_has_one_curve_of_equal_losses_and_the_differences(
    tmp_path, monkeypatch
):
    figures = []
    monkeypatch.setattr(style, "save", lambda figure, path: figures.append(figure))
    with hybrid_report.chart(tmp_path / "loss") as writer:
        for mesh, last in (("1", 1.0), ("data:2", 1.0), ("stage:2", 1.25)):
            writer.row({"mesh": mesh, "losses": [2.0, last]})
        writer.summary({})
    left, right = figures[0].axes
    assert [line.get_ydata().tolist() for line in left.lines] == [[2.0, 1.0]]
    floor = hybrid_report.FLOOR
    differences = [line.get_ydata().tolist() for line in right.lines]
    assert differences == [[floor, floor], [floor, 0.25]]


def test_what_cannot_be_divided_is_refused_before_any_training(tmp_path):
    with pytest.raises(BadInput, match="3 layers and 9 parts"):
        main(tmp_path, "--pipeline=interleaved", "--rounds=9")
    rows = tmp_path / "out/metrics.jsonl"
    assert not rows.exists() or not rows.read_text()
