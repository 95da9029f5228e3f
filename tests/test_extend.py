"""Own objects are found in files, modules and entry points."""

import sys

import numpy as np
import pytest

import dml
from dml import extend
from dml.types import BadInput

MINE = """
from neighbour import OP

def double(comm, buffer, op=None):
    buffer[...] = OP(buffer, buffer)

number = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write a user's file and its neighbour; change to their folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "neighbour.py").write_text("from numpy import add as OP\n")
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("import no_such_module\n")
    yield tmp_path
    sys.modules.pop("neighbour", None)


def test_a_name_of_the_table_comes_first(folder):
    assert extend.find("a", {"a": 1}, "dml.nothing") == 1


def test_a_function_of_a_file_is_loaded_once(folder):
    double = extend.find("./mine.py:double", {}, "dml.nothing")
    assert extend.find(f"{folder}/mine.py:double", {}, "dml.nothing") is double
    buffer = np.arange(3.0)
    dml.allreduce(None, buffer, algorithm="mine.py:double")
    assert buffer.tolist() == [0, 2, 4]


def test_a_function_of_a_module_is_loaded():
    assert extend.find("math:sqrt", {}, "dml.nothing")(9) == 3


def test_an_entry_point_of_an_installed_package_is_found(folder, monkeypatch):
    info = folder / "user-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: user\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[dml.testing]\nroot = math:sqrt\n")
    monkeypatch.syspath_prepend(folder)
    extend.installed.cache_clear()
    assert extend.find("root", {}, "dml.testing")(9) == 3
    assert extend.names({"a": 1}, "dml.testing") == ["a", "root"]
    assert extend.known("root", {}, "dml.testing")
    assert not extend.known("stem", {}, "dml.testing")


@pytest.mark.parametrize(
    "name, message",
    [
        ("other", "expected one of a, or FILE.py:NAME, got 'other'"),
        ("./no.py:f", "expected a Python file, got 'no.py'"),
        ("./mine.py:triple", "expected a function of ./mine.py, such as double, got"),
        ("./mine.py:number", "got 'number'; correct the name after the colon"),
        ("no_such:f", "expected a Python file or an installed module, got 'no_such'"),
    ],
)
def test_what_is_not_there_is_bad_input(folder, name, message):
    with pytest.raises(BadInput, match=message):
        extend.find(name, {"a": 1}, "dml.nothing")


def test_an_error_in_a_user_s_file_keeps_its_traceback(folder):
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            extend.find("./broken.py:f", {}, "dml.nothing")


def test_every_public_name_is_there():
    names = [*dml.MODULES, *(name for each in dml.NAMES.values() for name in each)]
    assert sorted(set(names)) == sorted(names)
    assert all(getattr(dml, name) is not None for name in names)
    assert set(names) <= set(dir(dml))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dml.nothing  # noqa: B018
