import numpy as np
import pytest

from dml.figures import learning as module
from dml.figures.learning import learning, smooth, thinned


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
    reach = count // module.SMOOTH
    inside = slice(reach, count - reach)
    assert np.allclose(smooth(3 - place)[inside], (3 - place)[inside])
    assert np.allclose(smooth(np.full(count, 7.0)), 7)
    assert np.abs(smooth((-1.0) ** place)).max() <= 1 / (reach + 1) + 1e-9


def test_long_lines_keep_their_extremes():
    values = np.random.default_rng(0).standard_normal(10 * module.POINTS)
    place = thinned(values)
    assert len(place) <= module.POINTS and (np.diff(place) > 0).all()
    assert {values.argmin(), values.argmax()} <= set(place.tolist())
    assert thinned(values[: module.POINTS]).tolist() == list(range(module.POINTS))
