"""Own objects are found in files, modules and entry points."""

import math
import re
import sys
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import dml
from dml import extend, sim
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE, with_first_check
from dml.wire.comm import Metered
from dml.wire.comm.tracebacks import exception_text

MINE = """
from neighbour import OP

def double(comm, buffer, op=None):
    buffer[...] = OP(buffer, buffer)

number = 3

def few(comm, buffer):
    pass

def yields(comm, buffer, op=None):
    yield

def named(comm, buffer, reduction=None):
    pass
"""
SOURCES = {  # of files that are no modules
    "syntax.py": "def f(:",
    "exits.py": "import sys; sys.exit(0)",
    "relative.py": "from .neighbour import OP",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write a user's file and its neighbour; change to their folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "neighbour.py").write_text("from numpy import add as OP\n")
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("import no_such_module\n")
    for name, text in SOURCES.items():
        (tmp_path / name).write_text(text)
    extend.load.cache_clear()
    return tmp_path


def test_a_function_of_a_file_is_loaded_once(folder):
    double = extend.find("./mine.py:double", {}, "dml.nothing")
    assert extend.find(f"{folder}/mine.py:double", {}, "dml.nothing") is double
    buffer = np.arange(3.0)
    dml.allreduce(None, buffer, algorithm="mine.py:double")
    assert buffer.tolist() == [0, 2, 4]


def test_an_entry_point_of_an_installed_package_is_found(folder, monkeypatch):
    info = folder / "user-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: user\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[dml.testing]\nroot = math:sqrt\n")
    monkeypatch.syspath_prepend(folder)
    extend.installed.cache_clear()
    assert extend.find("root", {}, "dml.testing") is math.sqrt
    assert extend.find("math:sqrt", {}, "dml.nothing") is math.sqrt
    assert extend.names({"a": 1}, "dml.testing") == ["a", "root"]
    assert extend.find("root", {"root": 1}, "dml.testing") == 1
    assert extend.is_known("root", {}, "dml.testing")
    assert not extend.is_known("stem", {}, "dml.testing")
    assert not extend.is_known("root:2", {}, "dml.testing")


@pytest.mark.parametrize(
    "name, message",
    [
        ("other", "expected one of a, or FILE.py:NAME, got 'other'"),
        ("./no.py:f", "expected a Python file, got 'no.py'"),
        ("./mine.py:triple", "expected a function of ./mine.py, such as double, few,"),
        ("./mine.py:number", "got 'number'; correct the name after the colon"),
        ("./mine.py:doubel", "such as double, got 'doubel'"),
        ("no_such:f", "expected a Python file or an installed module, got 'no_such'"),
        (":f", "expected a Python file or an installed module, got ''"),
        ("./mine.pyc:f", "expected a Python file or an installed module, got './mine"),
        ("./mine.py:double:x", "expected a Python file or an installed module, got"),
        ("./syntax.py:f", "expected Python in .*syntax.py, got in line 1: "),
        ("./exits.py:f", "got a script that exits when it is imported"),
        ("./relative.py:f", "expected absolute imports in .*relative.py"),
        ("./mine.py:few", "few\\(comm, buffer, op=np.add\\), got .*: too many posit"),
        ("./mine.py:named", "which does not take these arguments: .*'op'"),
        ("./mine.py:yields", "got one with yield or await"),
    ],
)
def test_what_is_no_allreduce_is_bad_input(folder, name, message):
    with pytest.raises(BadInput, match=message):
        extend.find(name, {"a": 1}, extend.ALLREDUCES)


@pytest.mark.parametrize("value", ["math:no_such", "no_such:f", "math:pi"])
def test_a_broken_entry_point_is_bad_input(folder, monkeypatch, value):
    point = EntryPoint("root", value, "dml.testing")
    monkeypatch.setattr(extend, "installed", lambda group: {"root": point})
    with pytest.raises(BadInput, match="for the entry point 'root', got"):
        extend.find("root", {}, "dml.testing")


def test_each_file_has_its_own_neighbours(folder, monkeypatch):
    """Also where another module of the same name is loaded already."""
    other = ModuleType("neighbour")
    other.__file__ = "/somewhere/neighbour.py"
    monkeypatch.setitem(sys.modules, "neighbour", other)
    values = {"a": np.add, "b": np.multiply}
    for name, op in values.items():
        (folder / name).mkdir()
        text = f"from numpy import {op.__name__} as OP\n"
        (folder / name / "neighbour.py").write_text(text)
        (folder / name / "mine.py").write_text(MINE)
    for name, op in values.items():
        double = extend.find(f"./{name}/mine.py:double", {}, "dml.nothing")
        assert double.__globals__["OP"] is op
    assert sys.modules["neighbour"] is other


def test_neighbours_are_forgotten_and_a_function_is_known_elsewhere(
    folder, monkeypatch
):
    double = extend.find("./mine.py:double", {}, "dml.nothing")
    assert "neighbour" not in sys.modules
    monkeypatch.chdir("/")
    assert extend.find("./mine.py:double", {}, "dml.nothing") is double


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"op": "ring"}, "expected an operation such as np.add, .* got a str;"),
        (
            {"op": max},
            "expected an operation such as np.add, .* got a builtin_function",
        ),
        ({"algorithm": None}, "expected one of star, .*, got 'None'"),
        ({"buffer": np.array([1, "a"], object)}, "got dtype object; pass numbers"),
        ({"buffer": [1.0]}, "rank 0: expected .* got a list; pass a numpy array"),
        ({"buffer": [1.0], "accumulate": np.float32}, "got a list; pass a numpy array"),
    ],
)
def test_wrong_arguments_of_an_allreduce_are_bad_input(arguments, message):
    arguments = {"buffer": np.ones(3), "algorithm": "ring"} | arguments
    with pytest.raises(BadInput, match=message):
        sim.run(lambda comm: dml.allreduce(comm, **arguments), 2)


def test_an_allreduce_may_be_a_function():
    def reduce(comm, buffer, op):
        ALLREDUCE["ring"](comm, buffer, op)

    def program(comm):
        buffer = np.ones(3)
        dml.allreduce(comm, buffer, algorithm=reduce)
        return buffer.tolist()

    assert sim.run(program, 2) == [[2.0] * 3] * 2


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_the_first_call_checks_small_sums_and_left_messages(p):
    def twice(comm, buffer, op=np.add):
        ALLREDUCE["ring"](comm, buffer, op)
        ALLREDUCE["ring"](comm, buffer, op)

    def leaves(comm, buffer, op=np.add):
        ALLREDUCE["ring"](comm, buffer, op)
        comm.Isend(np.ones(1), (comm.rank + 1) % comm.size, 99)

    def program(comm, allreduce):
        comm, buffer = Metered(comm), np.ones(5)
        call = with_first_check(allreduce, "own")
        for _ in range(2):
            call(comm, buffer)
        return buffer.tolist(), comm.bytes_sent

    again = sim.run(partial(program, allreduce=ALLREDUCE["ring"]), p)
    assert [values for values, _ in again] == [[float(p * p)] * 5] * p
    assert sum(sent for _, sent in again) == 2 * 2 * (p - 1) * 5 * 8
    if p > 1:
        with pytest.raises(
            BadInput, match="expected own to sum .* dml.conformance own"
        ):
            sim.run(partial(program, allreduce=twice), p)
        with pytest.raises(BadInput, match="expected own to receive all messages"):
            sim.run(partial(program, allreduce=leaves), p)


def test_an_error_in_a_user_s_file_keeps_its_traceback(folder):
    for name in ("./broken.py:f", "./broken.py:f", "broken:f"):
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            extend.find(name, {}, "dml.nothing")


def test_the_text_of_an_error_has_the_frames_of_users_and_the_call(folder):
    (folder / "raises.py").write_text(
        "def mine(comm, buffer, op=None):\n    comm.Send(buffer)\n"
    )
    allreduce = extend.find("./raises.py:mine", {}, "dml.nothing")
    with pytest.raises(TypeError) as caught:
        sim.run(lambda comm: with_first_check(allreduce, "mine")(comm, np.ones(3)), 2)
    first, *lines = exception_text(caught.type, caught.value, caught.tb).splitlines()
    assert first == "Traceback (most recent call last):"
    assert [line for line in lines if line.startswith("  File")] == [
        f'  File "{folder / "raises.py"}", line 2, in mine'
    ]
    assert "in a call of mine on rank 0 of 2 with 1 x float64, add" in lines
    assert re.fullmatch(r"omitted \d+ frames of dml; .*", lines[-1])


def test_an_error_outside_of_users_functions_has_all_frames():
    with pytest.raises(BadInput) as caught:
        sim.run(lambda comm: comm.Send(np.ones(3), "a"), 2)
    text = exception_text(caught.type, caught.value, caught.tb)
    assert "matching.py" in text and "omitted" not in text


def test_every_public_name_is_there():
    names = dml.__all__
    assert sorted(set(names)) == sorted(names)
    assert all(getattr(dml, name) is not None for name in names)
    assert dir(dml) == sorted([*names, "__version__"])
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dml.nothing  # noqa: B018


def test_the_page_of_the_public_api_lists_every_name():
    page = (Path(__file__).parents[1] / "docs/api.md").read_text()
    listed = re.findall(r"^\| `dml\.(\w+)", page, re.MULTILINE)
    assert sorted(listed) == sorted(dml.__all__)
