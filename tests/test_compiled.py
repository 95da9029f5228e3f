"""A source hash changes with the source of a model, and of the code that it calls."""

import importlib
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

from dml import compiled
from dml.models.sparse import logistic_edges, svm
from dml.wire.memory import hogwild, lock_free, locked

ROOT = Path(__file__).parents[1]
CALLEE = """
from numba import njit

@njit
def twice(x):
    return {factor} * x
"""
CALLER = """
from hashed_callee import twice
"""


def test_an_edited_callee_changes_the_source_hash(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "hashed_callee.py").write_text(CALLEE.format(factor=2))
    (tmp_path / "hashed_caller.py").write_text(CALLER)
    caller = importlib.import_module("hashed_caller")
    before = compiled.source_hash(caller)
    (tmp_path / "hashed_callee.py").write_text(CALLEE.format(factor=3))
    compiled.source_hash.cache_clear()
    assert compiled.source_hash(caller) != before
    for name in ("hashed_caller", "hashed_callee"):
        del sys.modules[name]


MODEL = """
from numba import njit
from typing import NamedTuple
from dml.models.sparse.problem import descend as move
from dml.models.sparse.problem import same_data as with_rate
from dml.models.sparse.problem import leave_table as settle
from dml.types import Edges

class Own(NamedTuple):
    edges: Edges

@njit(nogil=True, cache=True)
def gradient(table, data, e, t, grads):
    return 0.0, False
"""
RUN = """
import sys
import numpy as np
from dml.models.sparse.problem import problem
from dml.strategies.shared.workers import (
    Descent,
    allocate_gradients,
    epoch_settings,
    orders,
)
from dml.types import Edges
from dml.wire.memory import hogwild
from dml.wire.memory.lock_free import lock_free_loop
from dml.wire.memory.state import Worker, state

if sys.argv[1] == "own":
    import a_model_of_ones_own as model
    data = model.Own(Edges(np.arange(3), np.zeros(2, np.uint32)))
else:
    from dml.data.sparse.svmlight import generate
    from dml.models.sparse import svm as model
    data = model.documents(generate(2, 1, 1, 0), 1e-3)
start = np.zeros(1, np.float32)
one = problem(model, data, start)
data, pace = epoch_settings(one, Descent(lambda epoch: 0.1), 1)
shared = state(start, 1, False, False, np.zeros)
order = next(orders(2, 1))
lock_free_loop(model, hogwild)(
    shared, data, order, Worker(0, 1), pace, allocate_gradients(one)
)
"""


def test_a_model_that_only_one_run_can_import_does_not_stop_another(tmp_path):
    (tmp_path / "a_model_of_ones_own.py").write_text(MODEL)
    (tmp_path / "run.py").write_text(RUN)
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    for kind in ("own", "ours"):
        command = [sys.executable, str(tmp_path / "run.py"), kind]
        path = os.pathsep.join([str(ROOT), str(tmp_path)])
        ended = subprocess.run(
            command, env=env | {"PYTHONPATH": path}, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stderr
        (tmp_path / "a_model_of_ones_own.py").unlink(missing_ok=True)


def test_kernels_are_named_after_all_sources_that_they_call():
    names = set()
    for model, policy in product((svm, logistic_edges), (hogwild, locked)):
        name = lock_free.lock_free_loop(model, policy).py_func.__qualname__
        assert name.endswith(f".{compiled.source_hash(model, policy, lock_free)}")
        names |= {
            name,
            compiled.source_hash(model, policy),
            compiled.source_hash(model),
        }
    assert len(names) == 4 + 4 + 2
