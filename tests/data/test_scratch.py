from pathlib import Path

import numpy as np
import pytest

from dml.data.scratch import Scratch, Spool
from dml.types import BadInput

PAIR = np.dtype([("word", "<i4"), ("value", "<f8")])


def test_two_hands_write_one_file_by_place_and_a_nameless_one_leaves_nothing(tmp_path):
    with (
        Scratch(tmp_path / "file", PAIR) as one,
        Scratch(tmp_path / "file", PAIR) as two,
    ):
        given = np.array([(k, k / 3) for k in range(9)], PAIR)
        two.put(4, given[4:])
        one.put(0, given[:4])
        assert np.array_equal(two.get(0, 9), given)
        assert np.array_equal(one.get(3, 2), given[3:5])
        assert len(one.get(9, 0)) == 0
    assert (tmp_path / "file").read_bytes() == given.tobytes()
    (tmp_path / "file").unlink()
    with Scratch(tmp_path / "file", np.int32, unnamed=True) as file:
        file.put(1, np.arange(3, dtype=np.int32))
        assert file.get(0, 4).tolist() == [0, 0, 1, 2]
        assert not [*tmp_path.iterdir()]


def test_a_full_disk_a_short_file_and_a_missing_folder_are_bad_input(tmp_path):
    with Scratch(Path("/dev/full"), np.int32) as file:
        full = "/dev/full: expected space for at least 20 bytes, got No space left"
        with pytest.raises(BadInput, match=full):
            file.put(2, np.zeros(3, np.int32))
    with Scratch(tmp_path / "short", np.int32) as file:
        file.put(0, np.zeros(3, np.int32))
        with pytest.raises(BadInput, match="short: expected 8 bytes at byte 12"):
            file.get(1, 4)
    for unnamed in (True, False):
        with pytest.raises(BadInput, match="No such file .*; pass a writable folder"):
            Scratch(tmp_path / "no" / "file", np.int32, unnamed)


@pytest.mark.parametrize("capacity", (5, 8, 100))
def test_a_spool_gives_back_what_it_took_from_memory_and_disk(tmp_path, capacity):
    given = np.array([(k // 3, k / 7) for k in range(40)], PAIR)
    with Spool(tmp_path / "file", PAIR, capacity) as spool:
        at = 0
        for length in (5, 0, 3, 1, 4, 5, 5, 2, 5, 5, 5):
            room = spool.reserve(5)
            assert len(room) >= 5
            room[:length] = given[at : at + length]
            assert np.array_equal(spool.commit(length), given[at : at + length])
            at += length
        assert len(spool) == at == 40
        assert (spool.spilled > 0) == (capacity < 40)
        for start in range(41):
            for stop in range(start, 41):
                assert np.array_equal(spool.get(start, stop - start), given[start:stop])
        for word in range(-1, 15):
            want = 4 + np.searchsorted(given["word"][4:31], word)
            assert spool.search("word", word, (4, 31)) == want
