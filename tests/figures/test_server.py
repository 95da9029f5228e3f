import numpy as np
import pytest

from dml.figures import server as server_figure
from dml.figures import style as figures


def bytes_of(path):
    return [path.with_suffix(f".{kind}").read_bytes() for kind in ("svg", "png")]


def test_a_histogram_counts_every_gradient_by_its_staleness():
    assert server_figure.histogram([3, 0, 3, 1.0]).tolist() == [1, 1, 0, 2]
    assert server_figure.histogram([]).tolist() == []


@pytest.mark.parametrize("draw", ["histograms", "waits"])
def test_equal_numbers_give_equal_bytes_and_others_do_not(tmp_path, draw):
    given = {
        "histograms": lambda k: {"a": np.array([1, 2, k]), "none": np.array([], int)},
        "waits": lambda k: {"a": np.array([[1.0, 2.0], [k, 0.0]])},
    }[draw]
    for name, k in (("one", 3), ("again", 3), ("other", 4)):
        getattr(server_figure, draw)(tmp_path / name, given(k))
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "again")
    assert bytes_of(tmp_path / "one") != bytes_of(tmp_path / "other")


def test_marks_stand_in_the_picture(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(figures, "save", lambda figure, path: seen.append(figure))
    server_figure.histograms(tmp_path, {"a": np.array([1, 1])}, {"a": (2, 9)})
    (axes,) = seen[0].axes
    assert axes.get_xlim() == (-0.5, 9.5)
    assert len(axes.lines) == 2


@pytest.mark.parametrize("workers", [3, 5000])
def test_a_bar_is_the_mean_of_adjacent_workers(tmp_path, monkeypatch, workers):
    drawn = []

    def record(axes, values, edges, **options):
        drawn.append((options["label"], values, edges, options.get("baseline", 0)))

    monkeypatch.setattr("matplotlib.axes.Axes.stairs", record)
    computing, waiting = np.arange(workers) * 2.0, np.ones(workers)
    server_figure.waits(tmp_path / "x", {"a": np.stack([computing, waiting], 1)})
    (_, total, edges, computed), (label, values, _, _) = drawn
    assert label == "computing"
    assert len(values) == min(workers, server_figure.BARS)
    assert (total - computed == pytest.approx(1)) and (values == computed).all()
    counts = np.diff(edges)
    assert edges[0] == -0.5 and edges[-1] == workers - 0.5
    assert values @ counts == pytest.approx(computing.sum())
    assert values[0] == computing[: int(counts[0])].mean()
