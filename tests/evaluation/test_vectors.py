import struct

import numpy as np
import pytest
from gensim.models import KeyedVectors

from dml.evaluation.vectors import load_state, replacing, save, save_state
from dml.types import BadInput


def table(V=5000, D=3, seed=0):
    """All magnitudes that float32 has, subnormal and negative zero too."""
    bits = np.random.default_rng(seed).integers(0, 2**32, (V, D), np.uint32)
    vectors = bits.view(np.float32)
    vectors[~np.isfinite(vectors)] = -0.0
    return vectors


def same_bits(a, b):
    return a.dtype == b.dtype == np.float32 and a.tobytes() == b.tobytes()


# gensim forgets to close a text without a header
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("V, D", [(5000, 3), (1, 1), (2, 7)])
def test_gensim_reads_every_word_and_bit_from_both_files(tmp_path, V, D):
    words = [f"wörd\N{NO-BREAK SPACE}{i}" for i in range(V)]
    vectors = table(V, D)
    save(tmp_path / "new", words, vectors)
    for name, own in (
        ("vectors.txt", {"no_header": True}),
        ("vectors.bin", {"binary": True}),
    ):
        keyed = KeyedVectors.load_word2vec_format(tmp_path / "new" / name, **own)
        assert keyed.index_to_key == words
        assert same_bits(keyed.vectors, vectors)
    assert same_bits(np.load(tmp_path / "new/vectors.npy"), vectors)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "vectors.bin",
        "vectors.npy",
        "vectors.txt",
    ]


def test_the_text_is_a_word_and_its_numbers_a_line(tmp_path):
    save(tmp_path, ["the", "of"], np.array([[1, -0.5], [0.1, 1e-9]], np.float32))
    text = (tmp_path / "vectors.txt").read_text()
    assert text == "the 1 -0.5\nof 0.100000001 9.99999972e-10\n"


def test_missing_files_are_refused(tmp_path):
    with pytest.raises(BadInput, match="No such file"):
        load_state(tmp_path / "none", 2, 3)


@pytest.mark.parametrize("word", ["", "a b", "a\n", "\tb"])
def test_words_that_would_break_the_file_are_refused(tmp_path, word):
    with pytest.raises(BadInput, match="white space, .* as word 2"):
        save(tmp_path, ["the", word], np.ones((2, 3), np.float32))
    assert not list(tmp_path.iterdir())


def test_a_row_is_needed_for_each_word(tmp_path):
    with pytest.raises(BadInput, match=r"2 words, got vectors of shape \(3, 4\)"):
        save(tmp_path, ["a", "b"], np.ones((3, 4), np.float32))


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("old")
    with pytest.raises(BadInput, match="No space left"), replacing(path) as file:
        file.write(b"new")
        raise OSError(28, "No space left on device")
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        raise KeyboardInterrupt
    with (
        pytest.raises(BadInput, match="expected disk space"),
        replacing(path / "under"),
    ):
        pass
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_state_has_the_bytes_of_the_c_program(tmp_path):
    # words before contexts, a row's bias after its vector
    vectors = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    save_state(
        tmp_path / "state.bin",
        vectors,
        np.array([0.1, 0.2, 0.3], np.float32),
        -vectors,
        np.array([7, 8, 9], np.float32),
    )
    a, b, c = (float(np.float32(bias)) for bias in (0.1, 0.2, 0.3))
    expected = [1, 2, a, 3, 4, b, 5, 6, c, -1, -2, 7, -3, -4, 8, -5, -6, 9]
    assert (tmp_path / "state.bin").read_bytes() == struct.pack("<18d", *expected)


def test_a_state_comes_back_bit_for_bit(tmp_path):
    V, D = 5000, 3
    state = (
        table(V, D, 1),
        table(V, 1, 2).ravel(),
        table(V, D, 3),
        table(V, 1, 4).ravel(),
    )
    save_state(tmp_path / "state", *state)
    again = load_state(tmp_path / "state", V, D)
    assert all(map(same_bits, again, state))
    assert all(part.flags.c_contiguous and part.flags.writeable for part in again)


def test_a_state_of_another_size_is_refused(tmp_path):
    ones = np.ones((4, 2), np.float32)
    save_state(tmp_path / "state", ones, ones[:, 0], ones, ones[:, 0])
    with pytest.raises(BadInput, match="expected 256 bytes .* got 192"):
        load_state(tmp_path / "state", 4, 3)
