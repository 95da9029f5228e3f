import subprocess
import sys

from dml.metrics.figures import chart, curves


def test_curves_are_labelled_and_written_as_svg_and_png(tmp_path):
    series = {"measured": ([1, 10, 100], [3, 5, 40]), "predicted": ([1, 100], [2, 39])}
    for log in ("", "x", "y", "xy"):
        curves(tmp_path / "a", series, x="bytes", y="ms", log=log, dashed=["predicted"])
    svg = (tmp_path / "a.svg").read_text()
    # matplotlib draws text as outlines and keeps the words as comments
    for word in ("measured", "predicted", "bytes", "ms"):
        assert f"<!-- {word} -->" in svg
    assert "stroke-dasharray" in svg
    assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"


def test_log_axes_move_the_points(tmp_path):
    drawn = set()
    for log in ("", "x", "y", "xy"):
        curves(tmp_path / "a", {"": ([1, 10, 100], [3, 5, 40])}, x="x", y="y", log=log)
        drawn.add((tmp_path / "a.svg").read_bytes())
    assert len(drawn) == 4


def test_equal_numbers_draw_equal_bytes(tmp_path):
    for name in "ab":
        with chart(tmp_path / name) as writer:
            for step in range(1, 30):
                writer.row({"step": step, "loss": 1 / step, "words": 7})
            assert not (tmp_path / f"{name}.svg").exists()
            writer.summary({})
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_metrics_import_nothing_heavy():
    program = (
        "import sys, dml.metrics.timer, dml.metrics.writers, dml.metrics.runs, "
        "dml.metrics.figures; "
        "assert not {'jax', 'matplotlib', 'rich', 'mpi4py'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
