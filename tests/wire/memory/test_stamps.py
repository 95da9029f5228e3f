"""A stamp changes with the source of a model, and of what it calls."""

import importlib
import sys

from dml.models import descent, sparse_logistic_edges, sparse_svm
from dml.wire.memory import atomics, batches, delayed, free, stamps

CALLEE = """
from numba import njit

@njit
def twice(x):
    return {factor} * x
"""
CALLER = """
from callee_of_a_stamp import twice
"""


def test_a_model_and_what_it_calls_are_in_its_stamp():
    found = set()
    stamps.callees(sparse_logistic_edges, found)
    assert {sparse_logistic_edges, sparse_svm, descent} <= found
    one, other = stamps.stamp(sparse_svm), stamps.stamp(sparse_logistic_edges)
    assert one != other and one == stamps.stamp(sparse_svm)


def test_what_a_loop_calls_is_in_its_stamp():
    for loop in (free, batches, delayed):
        found = set()
        stamps.callees(loop, found)
        assert {loop, free} <= found
        assert atomics in found


def test_an_edited_callee_has_another_stamp(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "callee_of_a_stamp.py").write_text(CALLEE.format(factor=2))
    (tmp_path / "caller_of_a_stamp.py").write_text(CALLER)
    caller = importlib.import_module("caller_of_a_stamp")
    before = stamps.stamp(caller)
    (tmp_path / "callee_of_a_stamp.py").write_text(CALLEE.format(factor=3))
    stamps.stamp.cache_clear()
    assert stamps.stamp(caller) != before
    for name in ("caller_of_a_stamp", "callee_of_a_stamp"):
        del sys.modules[name]
