"""Checkpoints: every bit comes back, and whenever a save stops, one is whole."""

import errno
import json
import os

import numpy as np
import pytest

from dml.evaluation import vectors
from dml.runs import checkpoints
from dml.runs.checkpoints import load, save
from dml.types import BadInput, Embeddings

WORDS, DIM = 5, 3


def rules(tables=2, **more):
    return {"tables": tables, "dim": DIM, "lr": None, "seed": 4} | more


def state(tables=2, seed=0):
    rng = np.random.default_rng(seed)
    rows = WORDS * tables
    shapes = (rows, DIM), (rows,), (rows, DIM), (rows,)
    return Embeddings(*(rng.standard_normal(s).astype(np.float32) for s in shapes))


def bits(state):
    return [(numbers.dtype, numbers.tobytes()) for numbers in state]


@pytest.mark.parametrize("tables", (1, 2))
def test_every_bit_comes_back(tmp_path, tables):
    kept = state(tables)
    kept.vectors_TxD[0] = np.float32([-0.0, 1e-45, 3e38])
    save(tmp_path, 7, rules(tables), kept)
    epoch, found = load(tmp_path, rules(tables))
    assert (epoch, bits(found)) == (7, bits(kept))


def test_files_are_those_the_c_program_goes_on_from(tmp_path):
    """A word's vector, then its bias, in float64; then contexts, of one table too."""
    kept = state(tables=1)
    save(tmp_path, 2, rules(tables=1), kept)
    for name, rows, biases in [
        ("parameters-2.bin", kept.vectors_TxD, kept.biases_T),
        ("squares-2.bin", kept.vector_squares_TxD, kept.bias_squares_T),
    ]:
        table = np.fromfile(tmp_path / name).reshape(2, WORDS, DIM + 1)
        assert (table[0] == np.column_stack([rows, biases])).all()
        assert (table[0] == table[1]).all()


@pytest.mark.parametrize("writes", range(3))
def test_a_save_that_stops_leaves_the_earlier_one_whole(tmp_path, monkeypatch, writes):
    """It stops before each of its three files is put in its place."""
    save(tmp_path, 1, rules(), state())
    left = [None] * writes

    def full(part, path):
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left.pop()
        put(part, path)

    put = os.replace
    monkeypatch.setattr(vectors.os, "replace", full)
    with pytest.raises(BadInput, match="expected disk space for .*No space left"):
        save(tmp_path, 2, rules(), state(seed=1))
    monkeypatch.undo()
    epoch, found = load(tmp_path, rules())
    assert (epoch, bits(found)) == (1, bits(state()))
    save(tmp_path, 3, rules(), state(seed=1))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["checkpoint.json", "parameters-3.bin", "squares-3.bin"]
    assert bits(load(tmp_path, rules())[1]) == bits(state(seed=1))


@pytest.mark.parametrize("field", range(4))
@pytest.mark.parametrize("bad", (np.nan, np.inf))
def test_what_is_not_finite_leaves_the_earlier_one(tmp_path, field, bad):
    save(tmp_path, 1, rules(), state())
    broken = state(seed=1)
    broken[field].flat[-1] = bad
    save(tmp_path, 2, rules(), broken)
    assert load(tmp_path, rules())[0] == 1


@pytest.mark.parametrize(
    "change, message",
    [
        ({"seed": 5}, "expected --seed=4 as .* got --seed=5; .*/config.json"),
        ({"lr": 0.1}, "expected --lr=None as .* got --lr=0.1"),
        ({"new": 1}, "expected --new=None as .* got --new=1"),
    ],
)
def test_the_first_flag_that_differs_is_named(tmp_path, change, message):
    save(tmp_path, 1, rules(), state())
    with pytest.raises(BadInput, match=message):
        load(tmp_path, rules(**change))


BROKEN = ["", "[]", "3", "{}", '{"epoch": 1}', "null"]
BROKEN += ['{"epoch": "two", "rules": {}, "words": 5}', '{"epoch": 1, "rules": 3}']


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_index_is_bad_input(tmp_path, text):
    save(tmp_path, 1, rules(), state())
    index = tmp_path / checkpoints.INDEX
    longer = json.loads(index.read_text()) | {"words": WORDS + 1}
    index.write_text(text)
    with pytest.raises(BadInput, match=f"expected a checkpoint in {tmp_path}, got"):
        load(tmp_path, rules())
    index.write_text(json.dumps(longer))
    with pytest.raises(BadInput, match="parameters-1.bin: expected 384 bytes.* 320"):
        load(tmp_path, rules())
