import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from dml.evaluation import masked_tokens as blanks
from dml.evaluation.masked_tokens import Prediction, fill, insert_sentence
from dml.types import BadInput

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "united"]
WORDS += ["states", "of", "america", "##s", "."]
AROUND = np.array([[2, *[11] * 10, 3], [2, *[8] * 10, 3]], np.int32)


@pytest.fixture(scope="module")
def tokenizer():
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def test_a_sentence_lies_in_a_window_whose_ends_and_rest_stay(tokenizer):
    tokens, at = insert_sentence(tokenizer, "The united ___ of Americas.", AROUND)
    said = [WORDS[token] for token in tokens[0]]
    assert said[: at + 1] == ["[CLS]", "the", "united", "[MASK]"]
    assert said[at + 1 : at + 5] == ["of", "america", "##s", "."]
    assert np.array_equal(tokens[:, at + 5 :], AROUND[:, at + 5 :])
    assert np.array_equal(tokens[:, 0], AROUND[:, 0])


def test_chances_are_means_over_windows_the_likeliest_word_first(tokenizer):
    def scores(tokens_NxL):  # by the token before and by the window's last but one
        odds_NxLxV = np.zeros((*tokens_NxL.shape, len(WORDS)))
        next_NxL = (np.roll(tokens_NxL, 1, axis=1) + 1) % len(WORDS)
        np.put_along_axis(odds_NxLxV, next_NxL[..., None], 3.0, 2)
        odds_NxLxV[tokens_NxL[:, -2] == 8, :, 5] = 4.0
        return odds_NxLxV

    (found,) = fill(tokenizer, scores, ["the united ___ of"], AROUND, best=2)
    one, e3, e4 = 1, np.exp(3), np.exp(4)
    expected = {
        "states": (e3 / (11 + e3) + e3 / (10 + e3 + e4)) / 2,
        "the": (one / (11 + e3) + e4 / (10 + e3 + e4)) / 2,
    }
    assert found.words == ("states", "the")
    assert np.allclose(found.chances, [expected[word] for word in found.words])


def test_a_sentence_without_its_one_gap_or_too_long_is_refused(tokenizer):
    for sentence, message in [
        ("the united states", "one ___"),
        ("___ of ___", "one ___"),
        ("the ___ " + "of " * 9, "10 tokens or fewer, got 11"),
    ]:
        with pytest.raises(BadInput, match=message):
            insert_sentence(tokenizer, sentence, AROUND)


def test_lines_and_bars_have_words_and_chances(tmp_path):
    given = [
        Prediction("a ___ b", ("$x$", "字"), (0.81, 0.04)),
        Prediction("___ .", ("y",), (0.001,)),
    ]
    first, second = blanks.lines(given)
    assert first.split() == ["a", "___", "b", "$x$", "81%", "字", "4%"]
    assert second.split() == ["___", ".", "y", "<1%"]
    blanks.draw(tmp_path / "a", given)
    svg = (tmp_path / "a.svg").read_text("utf-8")
    for words in ("a ___ b", "$x$", "□", "81%", "y", "&lt;1%"):
        assert f"<!-- {words} -->" in svg
