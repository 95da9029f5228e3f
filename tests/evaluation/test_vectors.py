import struct

import numpy as np
import pytest
from gensim.models import KeyedVectors

from dml.evaluation.vectors import load_state, save, save_state
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
    forms = {"vectors.txt": {"no_header": True}, "vectors.bin": {"binary": True}}
    for name, own in forms.items():
        keyed = KeyedVectors.load_word2vec_format(tmp_path / "new" / name, **own)
        assert keyed.index_to_key == words
        assert same_bits(keyed.vectors, vectors)
    assert same_bits(np.load(tmp_path / "new/vectors.npy"), vectors)
    assert len([*(tmp_path / "new").iterdir()]) == 3


@pytest.mark.parametrize("word", ["", "a b", "a\n", "\tb"])
def test_what_would_break_the_file_is_refused(tmp_path, word):
    with pytest.raises(BadInput, match="white space, .* as word 2"):
        save(tmp_path, ["the", word], np.ones((2, 3), np.float32))
    with pytest.raises(BadInput, match=r"2 words, got vectors of shape \(3, 4\)"):
        save(tmp_path, ["a", "b"], np.ones((3, 4), np.float32))
    assert not list(tmp_path.iterdir())


def test_a_state_has_the_bytes_of_the_c_program_and_comes_back(tmp_path):
    # words before contexts, a row's bias after its vector
    V, D = 5000, 3
    vectors, contexts = table(V, D, 1), table(V, D, 3)
    biases, context_biases = table(V, 1, 2), table(V, 1, 4)
    state = vectors, biases.ravel(), contexts, context_biases.ravel()
    save_state(tmp_path / "state", *state)
    rows = np.block([[vectors, biases], [contexts, context_biases]])
    packed = struct.pack(f"<{rows.size}d", *rows.ravel().tolist())
    assert (tmp_path / "state").read_bytes() == packed
    again = load_state(tmp_path / "state", V, D)
    assert all(map(same_bits, again, state))
    assert all(part.flags.c_contiguous and part.flags.writeable for part in again)
    with pytest.raises(BadInput, match="expected 320256 bytes .* got 320000"):
        load_state(tmp_path / "state", V + 4, D)
    with pytest.raises(BadInput, match="No such file"):
        load_state(tmp_path / "none", 2, 3)
