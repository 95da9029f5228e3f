import numpy as np
import pytest

from dml.data.text.reversal import dictionary, reversal
from dml.types import BadInput


def test_sentences_differ_and_translations_are_the_dictionarys_words_backward():
    for part in reversal(50, 20, words=5, length=4, seed=0):
        for read, written in zip(*part, strict=True):
            assert [dictionary(5)[word] for word in read[::-1]] == list(written)
    assert sorted(dictionary(30)) == list(range(30)) != list(dictionary(30))
    training, held_out = reversal(60, 60, words=3, length=5, seed=1)
    both = np.concatenate([training.inputs, held_out.inputs])
    assert both.shape == (120, 5)
    assert len(np.unique(both, axis=0)) == 120
    assert set(both.ravel()) == {0, 1, 2}
    one, same, other = (reversal(9, 9, 7, 6, seed)[0].inputs for seed in (0, 0, 1))
    assert (one == same).all() and (one != other).any()
    with pytest.raises(BadInput, match="of at least 40, got words=3"):
        reversal(10, 10, words=3, length=3, seed=0)
