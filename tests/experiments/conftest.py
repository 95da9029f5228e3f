"""A corpus of 60 words in a folder of its own, and GloVe on it by main(argv)."""

from contextlib import contextmanager
from pathlib import Path

import glove
import pytest
from matplotlib.figure import Figure
from studies.glove import report as glove_report

from dml.data.text.generated import generate
from dml.figures import style as figures
from dml.runs.writers import Writer, ignore

SMALL = ["--min_count=1", "--window=5", "--dim=8", "--epochs=2", "--save_every=1e-9"]
SAVE, LAY_OUT = figures.save, Figure.draw_without_rendering
LAID_OUT = set()  # labels of figures


@contextmanager
def no_chart(path, *axes):
    yield Writer(ignore, ignore)


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Lay each kind of figure out once; render none: that takes most of a small run."""

    def lay_out(figure):
        labels = ((a.get_title(), a.get_xlabel(), a.get_ylabel()) for a in figure.axes)
        if (key := tuple(labels)) not in LAID_OUT:
            LAY_OUT(figure)
            LAID_OUT.add(key)

    def save(figure, path):
        for suffix in ("svg", "png"):
            Path(f"{path}.{suffix}").write_text("<svg/>")

    monkeypatch.setattr(figures, "save", save)
    monkeypatch.setattr(Figure, "draw_without_rendering", lay_out)


@pytest.fixture
def drawn(undrawn, monkeypatch):
    """Render figures, for tests that read them."""
    monkeypatch.setattr(figures, "save", SAVE)
    monkeypatch.setattr(Figure, "draw_without_rendering", LAY_OUT)


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Write the corpus; keep what is counted beside it, not in the user's cache."""
    monkeypatch.setenv("DML_DATA", str(tmp_path / "cache"))
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(generate(60, 40, seed=1)))
    return path


@pytest.fixture
def train(corpus, tmp_path, monkeypatch):
    """Return train(*flags) -> summaries; figures, which are slow, only if wanted."""

    def run(*argv, out="run", drawn=False, overwrite=True):
        given = [f"--corpus={corpus}", f"--out={tmp_path / out}", *SMALL]
        if overwrite and not any(flag.startswith("--resume") for flag in argv):
            given.append("--overwrite")
        with monkeypatch.context() as patch:
            if not drawn:
                given.append("--timeline=0")
                patch.setattr(figures, "chart", no_chart)
                patch.setattr(glove_report, "pca_plot", lambda *_: None)
            return glove.main(["glove.py", *given, *argv])

    return run
