import numpy as np
import pytest

from dml.figures import server as server_figure
from dml.figures import style as figures


def test_a_histogram_counts_every_gradient_by_its_staleness(tmp_path, monkeypatch):
    assert server_figure.histogram([3, 0, 3, 1.0]).tolist() == [1, 1, 0, 2]
    none = server_figure.histogram([])
    assert none.tolist() == []
    counts = {"a": np.array([1, 1]), "b": none}
    server_figure.histograms(tmp_path / "x", counts)  # also of no gradients
    assert {path.name for path in tmp_path.iterdir()} == {"x.svg", "x.png"}
    seen = []
    monkeypatch.setattr(figures, "save", lambda figure, path: seen.append(figure))
    server_figure.histograms(tmp_path, counts, {"a": (2, 9)})
    axes = seen[0].axes[0]
    assert axes.get_title() == "a: mean 0.50" and axes.get_xlim() == (-0.5, 9.5)
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
