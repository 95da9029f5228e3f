"""A record is read back as it was written, or refused in one line."""

import numpy as np
import pytest

from dml.runs import records
from dml.types import BadInput

CONFIG = {"experiment": "linear", "--lr": 0.1, "--steps": 30, "--out": None}


def some(*lengths):
    rng = np.random.default_rng(sum(lengths))
    return [rng.integers(0, 1 << 64, n, np.uint64, endpoint=False) for n in lengths]


RANKS = [some(3, 0, 5), some(7), some(0), []]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.record"
    records.write(path, CONFIG, RANKS)
    return path


def test_a_record_is_read_back_as_it_was_written(file):
    found = records.read(file)
    assert found.config == CONFIG
    for got, was in zip(found.ranks, RANKS, strict=True):
        assert [words.dtype for words in got] == [np.uint64] * len(was)
        assert [words.tolist() for words in got] == [words.tolist() for words in was]
    found.check(dict(reversed(CONFIG.items())), 4)


def test_a_record_that_is_cut_off_or_changed_anywhere_is_refused(file):
    data = file.read_bytes()
    for place in range(len(data)):
        file.write_bytes(data[:place])
        with pytest.raises(BadInput, match="expected .*, got .*; record it again"):
            records.read(file)
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(BadInput, match="run.record: expected"):
            records.read(file)
    file.write_bytes(data + b"\n")
    with pytest.raises(BadInput, match="bytes after its first line"):
        records.read(file)


def test_another_kind_of_file_is_refused(file, tmp_path):
    for data in (b"", b"\x89PNG\r\n", b"dml record 2 0 0\n", b"\n" * 99):
        file.write_bytes(data)
        with pytest.raises(BadInput, match="expected a record, got another kind"):
            records.read(file)
    for path, got in [(tmp_path / "none", "No such file"), (tmp_path, "directory")]:
        with pytest.raises(BadInput, match=f"expected a record to read, got .*{got}"):
            records.read(path)


@pytest.mark.parametrize(
    "change, size, message",
    [
        ({"--lr": 0.2}, 4, "expected --lr=0.1 as recorded in .*, got --lr=0.2; replay"),
        ({"experiment": "glove"}, 4, "experiment=linear as .*, got experiment=glove"),
        ({}, 3, "expected ranks=4 as recorded in .*, got ranks=3"),
        ({"--new": 1}, 4, "expected --new=no value as .*, got --new=1"),
        ({"--lr": 1, "--steps": 1}, 4, "expected --lr"),
        (None, 4, "expected --steps=30 .* got --steps=no value"),
    ],
)
def test_another_configuration_is_refused_by_its_first_flag(
    file, change, size, message
):
    config = CONFIG | (change or {})
    if change is None:
        del config["--steps"]
    with pytest.raises(BadInput, match=message):
        records.read(file).check(config, size)


def test_a_record_that_cannot_be_written_leaves_the_earlier_one(file, monkeypatch):
    def full(*_):
        raise OSError("no space is left")

    was = file.read_bytes()
    monkeypatch.setattr("os.replace", full)
    with pytest.raises(BadInput, match="expected disk space for .*, got no space"):
        records.write(file, CONFIG, [])
    assert file.read_bytes() == was
    assert [each.name for each in file.parent.iterdir()] == ["run.record"]
