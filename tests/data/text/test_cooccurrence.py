import struct

import numpy as np
import pytest

from dml.data.text import cooccurrence as kernels
from dml.data.text.cooccurrence import COUNT, END, RECORD, read
from dml.strategies.counting.runs import fuse
from dml.types import BadInput


def test_records_have_the_bytes_of_the_c_program_and_others_are_bad_input(tmp_path):
    (tmp_path / "file").write_bytes(struct.pack("<iid", 3, 70_000, 0.1) * 2)
    assert RECORD.itemsize == COUNT.itemsize == 16
    assert read(tmp_path / "file").tolist() == [(3, 70_000, 0.1)] * 2
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "cut").write_bytes(b"x" * 24)
    for name in ("missing", "empty", "cut"):
        with pytest.raises(BadInput, match=f"{name}: expected records of 16 bytes"):
            read(tmp_path / name)


def test_weights_are_inverted_distances_and_the_index_has_all_places():
    found = kernels.weights(1000)
    assert found[0] == 0
    off = found[1:].astype(float) / 2**32 - 1 / np.arange(1, 1001)
    assert np.abs(off).max() <= 2.0**-33
    numbers = np.random.default_rng(0).integers(END, 9, 500).astype(np.int32)
    found = kernels.index(numbers, 10)  # word 9 stands nowhere
    for word in range(10):
        places = found.positions[found.starts[word] : found.starts[word + 1]]
        assert np.array_equal(places, np.flatnonzero(numbers == word))


@pytest.mark.parametrize("words", (1, 63, 64, 65, 1000))
def test_sums_drain_by_rising_context_and_are_zero_after(words):
    rng = np.random.default_rng(words)
    sums, found = kernels.sums(words), np.zeros(words + 3, COUNT)
    for turn in range(3):
        contexts = rng.integers(0, words, 200)
        units = rng.integers(1, 2**63, 200, np.uint64) >> np.uint64(8)
        want = np.zeros(words, np.uint64)
        for context, unit in zip(contexts, units, strict=True):
            kernels.add(sums, context, unit)
            want[context] += unit
        used = kernels.drain(turn, sums, found, 3)
        places = np.flatnonzero(want)
        assert found["context"][3:used].tolist() == (places + 1).tolist()
        assert np.array_equal(found["value"][3:used], want[places])
        assert set(found["word"][3:used]) == {turn + 1}
        assert not sums.units.any()
        assert not sums.masks.any()


def test_counting_goes_on_after_full_records_and_at_right_members_of_pairs():
    numbers = np.random.default_rng(0).integers(END, 20, 400).astype(np.int32)
    index, sums = kernels.index(numbers, 20), kernels.sums(20)
    weights, whole = kernels.weights(5), np.empty(400, COUNT)
    word, used = kernels.count(index, 0, kernels.Window(weights, True), 0, sums, whole)
    assert word == 20
    parts, word = [], 0
    while word < 20:
        room = np.empty(50, COUNT)
        word, length = kernels.count(
            index, 0, kernels.Window(weights, True), word, sums, room
        )
        assert 0 < length <= 50
        parts.append(room[:length])
    assert len(parts) > 5
    assert np.array_equal(np.concatenate(parts), whole[:used])

    numbers = np.random.default_rng(1).integers(END, 9, 300).astype(np.int32)
    weights, sums, table = kernels.weights(4), kernels.sums(9), np.empty(81, COUNT)

    def total(parts):
        found = np.zeros((9, 9), np.uint64)
        for part, first in parts:
            index = kernels.index(part, 9)
            _, used = kernels.count(
                index, first, kernels.Window(weights, True), 0, sums, table
            )
            for row in table[:used]:
                found[row["word"] - 1, row["context"] - 1] += row["value"]
        return found.tolist()

    whole = total([(numbers, 0)])
    for cut in (4, 5, 100, 299):
        assert total([(numbers[:cut], 0), (numbers[cut - 4 :], 4)]) == whole


def test_merging_adds_what_is_alike_and_keeps_the_order():
    big = 2**63
    parts = [
        [(3, 1, 5), (3, 4, big), (5, 2, 1)],
        [(3, 4, 7), (4, 9, 2)],
        [],
        [(3, 2, 1), (4, 9, 3), (6, 1, 1)],
    ]
    edges = np.cumsum([0, *map(len, parts)])
    sums, out = kernels.sums(9), np.empty(8, COUNT)
    used = kernels.merge(np.array(sum(parts, []), COUNT), edges, 2, 6, sums, out)
    want = [(3, 1, 5), (3, 2, 1), (3, 4, big + 7), (4, 9, 5), (5, 2, 1), (6, 1, 1)]
    assert out[:used].tolist() == want
    values = out[:used].view(RECORD)
    kernels.to_values(out[:used], values)
    assert values["value"].tolist() == [n / 2**32 for _, _, n in want]


@pytest.mark.parametrize(
    "bad, position",
    [
        ((3, 10, 1), 1),  # a context after the last word
        ((3, 0, 1), 1),
        ((3, -(2**31), 1), 1),
        ((2, 1, 1), 1),  # a word before the first
        ((7, 1, 1), 1),
        ((5, 2, 1), 2),  # out of order: the record after it is not reached
    ],
)
def test_merging_refuses_records_that_are_out_of_range_or_order(bad, position):
    parts = [
        np.array(part, COUNT) for part in ([(3, 1, 5), bad, (4, 1, 1)], [(5, 1, 1)])
    ]
    none, sums = np.empty(0, COUNT), kernels.sums(9)
    used = kernels.merge(
        np.concatenate(parts), np.array([0, 3, 4]), 2, 6, sums, np.empty(4, COUNT)
    )
    assert used == -1 - position
    for rank, of_ranks in enumerate([parts, [none, *parts], [*parts[::-1], none]]):
        with pytest.raises(BadInput, match=f"from rank {min(rank, 1)}, got"):
            fuse([none, *of_ranks], (2, 6), sums)
