"""Checkpoints: every bit is read back, and a complete one exists at every moment."""

import errno
import json
import os
import shutil
import zipfile
from contextlib import suppress

import numpy as np
import pytest

from dml import files
from dml.runs import archive, checkpoints
from dml.types import BadInput

RULES = {"--lr": 0.1, "--seed": 4, "--sizes": (1, 2), "words": 5}


def state(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "rows": np.float32([[-0.0, 1e-45, 3e38], rng.normal(size=3)]),
        "tree/bias": rng.normal(size=2),
        "seen": np.array([True, False]),
        "none": np.zeros((0, 3), np.int8),
        "count": np.array(seed),
    }


def shapes(arrays):
    return {name: archive.shape_text(array) for name, array in arrays.items()}


def bits(arrays):
    return {
        name: (text, arrays[name].tobytes()) for name, text in shapes(arrays).items()
    }


def save(folder, number, arrays, **options):
    checkpoints.write(folder / f"epoch-{number}.npz", arrays, RULES, **options)


def load(folder, rules=RULES, **options):
    said = []
    like = shapes(state())
    number, arrays, _ = checkpoints.load(folder, rules, like, said.append, **options)
    return number, bits(arrays), said


@pytest.fixture
def saved(tmp_path):
    """A folder with the epochs 3 and 4."""
    for number in (2, 3, 4):
        save(tmp_path, number, state(number))
    return tmp_path


def test_every_bit_is_read_back_and_numpy_reads_the_arrays(saved):
    assert load(saved) == (4, bits(state(4)), [])
    assert sorted(os.listdir(saved)) == ["epoch-3.npz", "epoch-4.npz"]
    with np.load(saved / "epoch-4.npz") as found:
        assert found["rows"].tobytes() == state(4)["rows"].tobytes()


def test_no_changed_byte_gives_other_bits(saved):
    """Bytes of the file are changed in turn; the earlier checkpoint replaces it."""
    path = saved / "epoch-4.npz"
    whole, used = path.read_bytes(), set()
    for place in range(0, len(whole), 11):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        number, found, said = load(saved)
        assert found == bits(state(number)) and len(said) == (number == 3)
        assert all(line.startswith("epoch-4.npz ") for line in said)
        used.add(number)
    assert 3 in used  # some bytes of a zip file, such as dates, have no effect


@pytest.mark.parametrize("length", [0, 1, 100, -1])
def test_an_incomplete_file_is_not_read(saved, length):
    path = saved / "epoch-4.npz"
    path.write_bytes(path.read_bytes()[:length])
    number, found, (said,) = load(saved)
    assert (number, found) == (3, bits(state(3)))
    assert said == "epoch-4.npz cannot be read; resuming from epoch-3.npz"


def rewrite(path, change):
    """Change the index of an archive, with a valid checksum of the zip file."""
    with np.load(path) as found:
        arrays = dict(found.items())
    with zipfile.ZipFile(path) as old:
        index = json.loads(old.read(archive.INDEX))
    index = change(index)
    with zipfile.ZipFile(path, "w") as new:
        new.writestr(archive.INDEX, json.dumps(index))
        for name, array in arrays.items():
            if name != archive.INDEX:
                with new.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, array)


CHANGES = {
    "number": lambda index: index["description"].update(number=-3),
    "text": lambda index: index["description"].update(number="x"),
    "rules": lambda index: index["description"].update(rules=[1]),
    "description": lambda index: index.update(description=3),
    "arrays": lambda index: index.update(arrays=None),
    "hash": lambda index: index.update(sha256=3),
    "further": lambda index: index.update(further=3),
}


@pytest.mark.parametrize("change", [*CHANGES, "list", "null"])
def test_an_index_with_other_types_or_numbers_is_not_read(saved, change):
    def changed(index):
        if change in CHANGES:
            CHANGES[change](index)
            return index
        return {"list": [], "null": None}[change]

    rewrite(saved / "epoch-4.npz", changed)
    number, found, (said,) = load(saved)
    assert (number, found) == (3, bits(state(3)))
    assert said.startswith("epoch-4.npz ")


def test_arrays_in_the_place_of_others_are_not_read(saved):
    (saved / "epoch-3.npz").unlink()
    other = state(4) | {"rows": state(9)["rows"]}
    path = saved / "epoch-4.npz"
    index = archive.read_index(path)
    archive.write(path, other, index.description)
    rewrite(path, lambda _: index._asdict())
    with pytest.raises(BadInput, match="epoch-4.npz is not what was saved"):
        load(saved)
    os.rename(path, saved / "epoch-7.npz")
    with pytest.raises(BadInput, match="epoch-7.npz is of another number"):
        load(saved)


class Killed(BaseException):
    """The process is killed: no handler is called."""


@pytest.mark.parametrize("number", (4, 5))
@pytest.mark.parametrize("error", (Killed, OSError(errno.ENOSPC, "No space left")))
@pytest.mark.parametrize("place", ("write_array", "writestr", "replace"))
def test_a_save_that_stops_leaves_a_complete_checkpoint(
    saved, monkeypatch, number, error, place
):
    (saved / "epoch-3.npz").unlink()  # epoch 4 is the only one
    home = {"write_array": np.lib.format, "writestr": zipfile.ZipFile}

    def stop(*args, **options):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(home.get(place, files.os), place, stop)
        if error is Killed:
            patch.setattr(files.Path, "unlink", stop)
            with suppress(Killed):
                save(saved, number, state(9))
        else:
            with pytest.raises(BadInput, match="expected disk space for .*No space"):
                save(saved, number, state(9))
    assert load(saved) == (4, bits(state(4)), [])
    save(saved, number, state(9), keep=1)
    assert os.listdir(saved) == [f"epoch-{number}.npz"]
    assert load(saved) == (number, bits(state(9)), [])


def test_a_save_deletes_later_checkpoints(saved):
    """They are from before a resume at an earlier epoch."""
    (saved / "epoch-foreign.npz").touch()
    save(saved, 2, state(9))
    assert sorted(os.listdir(saved)) == ["epoch-2.npz", "epoch-foreign.npz"]


@pytest.mark.parametrize("bad", (np.nan, np.inf))
def test_a_state_that_is_not_finite_leaves_the_earlier_ones(saved, bad):
    save(saved, 5, state(5) | {"rows": np.float32([1, bad])})
    assert load(saved)[0] == 4


@pytest.mark.parametrize(
    "change, message",
    [
        ({"--seed": 5}, "expected --seed=4 as .*epoch-4.npz, got --seed=5; pass the"),
        ({"--lr": None}, "expected --lr=0.1 as .*, got --lr=None"),
        ({"--new": 1}, "expected --new=None as .*, got --new=1"),
    ],
)
def test_the_first_rule_that_differs_is_named(saved, change, message):
    with pytest.raises(BadInput, match=message):
        load(saved, RULES | change)
    assert load(saved, RULES | change, free=change)[0] == 4


def test_a_folder_without_checkpoints_is_bad_input(tmp_path):
    folder = tmp_path / "checkpoints"
    with pytest.raises(BadInput, match="a complete checkpoint in .*, got none; pass"):
        load(folder)
    (folder / "step-4").mkdir(parents=True)
    (folder / "step-4" / "index.json").touch()
    with pytest.raises(BadInput, match="got those of an earlier version of dml"):
        load(folder)
    shutil.rmtree(folder)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "checkpoint.json").write_text('{"epoch": -3}')
    with pytest.raises(BadInput, match="got those of an earlier version of dml"):
        load(folder)
