import subprocess
import sys

import numpy as np

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


def test_values_that_are_not_finite_are_left_out(tmp_path):
    gaps = {"short": ([0, 2], [1, 2]), "long": (range(4), [1, np.nan, 2, np.inf])}
    for name, curve in gaps.items():
        panels(tmp_path / name, [Panel("", {"a": curve}, "x", "y")])
    short, long = (tmp_path / f"{name}.svg" for name in gaps)
    assert short.read_bytes() == long.read_bytes()


def test_equal_numbers_draw_equal_bytes(tmp_path):
    for name in "ab":
        with chart(tmp_path / name) as writer:
            for step in range(1, 30):
                writer.row({"step": step, "loss": 1 / step, "words": 7})
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
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
