import numpy as np
import pytest

from dml.data.text.vocabulary import read, vocabulary, write
from dml.types import BadInput


def test_words_fall_by_count_then_rise_by_bytes_and_rare_ones_go_first():
    counts = {"b": 3, "é": 3, "a": 3, "zz": 9, "z": 3, "𝄞": 3, "\uffee": 3, "B": 3}
    words, numbers = vocabulary(counts)
    assert words == ["zz", "B", "a", "b", "z", "é", "\uffee", "𝄞"]
    assert words[1:] == sorted(words[1:], key=str.encode)
    assert numbers.tolist() == [9] + 7 * [3]
    assert numbers.dtype == np.int64
    counts = {"a": 5, "b": 4, "c": 4, "d": 1}
    assert vocabulary(counts, min_count=4).words == ["a", "b", "c"]
    assert vocabulary(counts, max_vocab=2).words == ["a", "b"]
    assert vocabulary(counts, 4, 9).words == ["a", "b", "c"]


@pytest.mark.parametrize(
    "counts, limits, message",
    [
        ({}, (1, 0), "got 0 of 0"),
        ({"a": 9, "b": 4}, (5, 0), "at least 5 times, got 1 of 2"),
        ({"a": 9, "b": 4}, (1, 1), "max_vocab=1"),
        ({"a": 9}, (5, 0, 77), "got 1 of 77"),
    ],
)
def test_fewer_than_two_words_are_bad_input(counts, limits, message):
    with pytest.raises(BadInput, match=f"{message}.*lower --min_count"):
        vocabulary(counts, *limits)


def test_a_vocabulary_has_the_bytes_of_the_c_program_and_is_read_back(tmp_path):
    given = vocabulary({"the": 12, "naïve": 7, "of": 10**12})
    write(tmp_path / "vocab.txt", given)
    text = "of 1000000000000\nthe 12\nnaïve 7\n"
    assert (tmp_path / "vocab.txt").read_bytes() == text.encode()
    again = read(tmp_path / "vocab.txt")
    assert again.words == given.words
    assert again.counts.dtype == np.int64
    assert np.array_equal(again.counts, given.counts)
    (tmp_path / "binary").write_bytes(b"\xff\xfe 3\n")
    (tmp_path / "short").write_text("a 3\n")
    (tmp_path / "empty").write_text("")
    for name in ("missing", "binary", "short", "empty"):
        with pytest.raises(BadInput, match=f"{name}: expected .*; pass a vocab.txt"):
            read(tmp_path / name)


@pytest.mark.parametrize("line", ["b", "b ", " 2", "b 2 3", "b x", "b -1", "", "a 2"])
def test_a_broken_line_is_named(tmp_path, line):
    (tmp_path / "vocab.txt").write_text(f"a 3\n{line}\nc 1\n")
    with pytest.raises(BadInput, match=f"vocab.txt: line 2: .* got '{line.rstrip()}'"):
        read(tmp_path / "vocab.txt")
