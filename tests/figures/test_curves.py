"""Curves, learning curves, races and servers: numbers that are drawn."""

import subprocess
import sys

import numpy as np
import pytest

from dml.figures import allreduce_times, style
from dml.figures import learning as module
from dml.figures import server as server_figure
from dml.figures.learning import learning, smooth, thin
from dml.figures.style import Panel, chart, curves, panels


def test_curves_are_labelled_and_log_axes_move_the_points(tmp_path):
    series = {"measured": ([1, 10, 100], [3, 5, 40]), "predicted": ([1, 100], [2, 39])}
    drawn = set()
    for log in ("", "x", "y", "xy"):
        curves(tmp_path / "a", series, x="bytes", y="ms", log=log, dashed=["predicted"])
        drawn.add((tmp_path / "a.svg").read_text())
    assert len(drawn) == 4
    for svg in drawn:  # text is drawn as outlines; its words are comments
        for word in ("measured", "predicted", "bytes", "ms"):
            assert f"<!-- {word} -->" in svg
        assert "stroke-dasharray" in svg
    assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.parametrize("xs, whole", [([1, 2], True), ([1.0, 2.0], False)])
def test_integers_have_ticks_at_integers(tmp_path, monkeypatch, xs, whole):
    ticks = []
    save = lambda figure, path: ticks.extend(figure.axes[0].get_xticks())  # noqa: E731
    monkeypatch.setattr(style, "save", save)
    curves(tmp_path / "a", {"a": (xs, [1.0, 2.0])}, x="workers", y="speed-up")
    assert all(tick == int(tick) for tick in ticks) == whole


def test_the_panels_of_waiting_times_have_one_scale(tmp_path, monkeypatch):
    limits = []
    save = lambda figure, path: limits.extend(a.get_ylim() for a in figure.axes)  # noqa: E731
    monkeypatch.setattr(style, "save", save)
    work = {"bsp": np.array([[1.0, 9.0]]), "ssp": np.array([[1.0, 0.5]])}
    server_figure.waiting_times(tmp_path / "waiting", work)
    assert len(set(limits)) == 1 and limits[0][0] == 0


def test_values_that_are_not_finite_are_left_out(tmp_path):
    gaps = {"short": ([0, 2], [1, 2]), "long": (range(4), [1, np.nan, 2, np.inf])}
    for name, curve in gaps.items():
        panels(tmp_path / name, [Panel("", {"a": curve}, "x", "y")])
    short, long = (tmp_path / f"{name}.svg" for name in gaps)
    assert short.read_bytes() == long.read_bytes()


def test_a_logarithmic_axis_without_positive_numbers_is_linear(tmp_path):
    for values in ([np.nan, np.nan], [0.0, 0.0], []):
        series = {"a": ([1, 2][: len(values)], values)}
        panels(tmp_path / "a", [Panel("", series, "x", "y")], log="xy")


def test_equal_numbers_draw_equal_bytes_at_the_end(tmp_path):
    for name in "ab":
        with chart(tmp_path / name) as writer:
            writer.row({"step": 1, "loss": 1.0, "words": 7})
            assert not (tmp_path / f"{name}.svg").exists()
            writer.summary({})
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_metrics_and_figures_import_nothing_heavy():
    program = (
        "import sys, dml.metrics.timer, dml.runs.writers, dml.runs.folder; "
        "import dml.figures.style, dml.evaluation.vectors, dml.evaluation.words; "
        "import dml.figures.word_pairs; "
        "heavy = {'jax', 'matplotlib', 'rich', 'mpi4py', 'gensim', 'sklearn'}; "
        "assert not heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_figure_has_the_values_of_rows_and_of_the_summary(tmp_path, monkeypatch):
    drawn, draw = [], module.draw
    monkeypatch.setattr(module, "draw", lambda *found: drawn.append(found))
    with learning(tmp_path / "a") as writer:
        for step in range(1, 7):
            row = {"step": step, "loss": 1 + 1 / step}
            if step % 3 == 0:
                row |= {"cross_entropy": 2 + 1 / step, "accuracy": 1 - 1 / step}
            writer.row(row)
        writer.summary({"cross_entropy": 2.0, "accuracy": 0.5, "words_sent": 0})
    ((path, losses, held_out, shares),) = drawn
    assert losses.tolist() == [[step, 1 + 1 / step] for step in range(1, 7)]
    assert held_out == {3: 2 + 1 / 3, 6: 2.0}  # the summary's is the last one
    assert shares == {3: 1 - 1 / 3, 6: 0.5}
    draw(path, losses, held_out, shares)
    svg = (tmp_path / "a.svg").read_text("utf-8")
    for text in ("training", "accuracy", "held out 2", "held out 50.0%"):
        assert f"<!-- {text} -->" in svg
    draw(path, losses, {6: 2.0}, {6: 0.5})  # one evaluation is a point
    svg = (tmp_path / "a.svg").read_text("utf-8")
    assert "<!-- held out 2 · accuracy 50.0% -->" in svg and "-- accuracy" not in svg


def test_a_run_without_evaluations_is_drawn_and_one_without_steps_is_not(tmp_path):
    with learning(tmp_path / "none") as writer:
        writer.summary({})
    assert not list(tmp_path.iterdir())
    with learning(tmp_path / "one") as writer:
        writer.row({"step": 7, "loss": 0.0})
        writer.summary({})
    assert "held out" not in (tmp_path / "one.svg").read_text("utf-8")


@pytest.mark.parametrize("count", [1, 39, 40, 400])
def test_means_follow_lines_and_quiet_noise(count):
    place = np.arange(count, dtype=float)
    reach = count // module.SMOOTHING
    inside = slice(reach, count - reach)
    assert np.allclose(smooth(3 - place)[inside], (3 - place)[inside])
    assert np.allclose(smooth(np.full(count, 7.0)), 7)
    assert np.abs(smooth((-1.0) ** place)).max() <= 1 / (reach + 1) + 1e-9


def test_long_lines_keep_their_extremes():
    values = np.random.default_rng(0).standard_normal(10 * module.POINTS)
    place = thin(values)
    assert len(place) <= module.POINTS and (np.diff(place) > 0).all()
    assert {values.argmin(), values.argmax()} <= set(place.tolist())
    assert thin(values[: module.POINTS]).tolist() == list(range(module.POINTS))


def test_a_crossover_is_where_two_straight_lines_meet():
    # on log-log axes: 1e-6·√bytes against 1e-7·bytes, equal at 100 bytes
    sizes = (1, 10_000)
    few = {size: 1e-7 * size for size in sizes}
    many = {size: 1e-6 * size**0.5 for size in sizes}
    (found,) = allreduce_times.crossovers({"few": few, "many": many})
    assert (found.before, found.after) == ("few", "many")
    assert found.bytes == pytest.approx(100)
    fast, slow = {0: 3.0, 1: 1.0, 2: 1.0}, {0: 2.0, 1: 2.0, 2: 2.0}
    assert allreduce_times.crossovers({"fast": fast, "slow": slow}) == []


def test_the_figure_has_peers_without_predictions(tmp_path):
    row = {"registered": True, "p": 2, "native_seconds": 2e-3} | dict.fromkeys(
        ("words_sent", "sha256", "predicted_seconds")
    )
    with allreduce_times.chart(tmp_path / "race", compared=["ring"]) as writer:
        for n in (1000, 9000):
            ring = {"algorithm": "ring", "bytes": n, "seconds": n / 1e9}
            writer.row(row | ring | {"predicted_seconds": n / 2e9})
            peer = {"algorithm": "torch gloo", "bytes": n, "seconds": n / 1e8}
            writer.row(row | peer)
        writer.summary({})
    svg = (tmp_path / "race.svg").read_text()
    assert "<!-- torch gloo -->" in svg and "<!-- ring -->" in svg
    assert (tmp_path / "race.png").stat().st_size > 5000


def test_words_that_no_message_has_are_explained():
    texts = {None: "not counted", 0: "shared memory", 1024: "1,024"}
    for words, text in texts.items():
        assert allreduce_times.words_text({"words_sent": words, "p": 2}) == text
    assert allreduce_times.words_text({"words_sent": 0, "p": 1}) == "0"


def test_a_histogram_counts_every_gradient_by_its_staleness(tmp_path, monkeypatch):
    assert server_figure.histogram([3, 0, 3, 1.0]).tolist() == [1, 1, 0, 2]
    none = server_figure.histogram([])
    assert none.tolist() == []
    counts = {"a": np.array([1, 1]), "b": none}
    server_figure.histograms(tmp_path / "x", counts)  # also of no gradients
    assert {path.name for path in tmp_path.iterdir()} == {"x.svg", "x.png"}
    seen = []
    monkeypatch.setattr(style, "save", lambda figure, path: seen.append(figure))
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
    server_figure.waiting_times(
        tmp_path / "x", {"a": np.stack([computing, waiting], 1)}
    )
    (_, total, edges, computed), (label, values, _, _) = drawn
    assert label == "computing"
    assert len(values) == min(workers, server_figure.MAX_BARS)
    assert (total - computed == pytest.approx(1)) and (values == computed).all()
    counts = np.diff(edges)
    assert edges[0] == -0.5 and edges[-1] == workers - 0.5
    assert values @ counts == pytest.approx(computing.sum())
    assert values[0] == computing[: int(counts[0])].mean()
