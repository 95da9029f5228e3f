from functools import partial

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from dml.evaluation import masked_tokens as blanks
from dml.evaluation.masked_tokens import Prediction, fill, insert_sentence
from dml.evaluation.samples import END, continuation, draw_token, lines
from dml.figures import token_loss as surprise
from dml.types import BadInput

ALPHABET = [END, *sorted(pre_tokenizers.ByteLevel.alphabet())]


@pytest.fixture(scope="module")
def tokenizer():
    made = Tokenizer(models.BPE({one: i for i, one in enumerate(ALPHABET)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([END])
    return made


def after(spread=0.0, seen=None):
    """Return scores: after each letter comes the next of the alphabet."""

    def scores(tokens_1xL):
        if seen is not None:
            seen.append(tokens_1xL.copy())
        next_1xL = (tokens_1xL + 1) % len(ALPHABET)
        odds = 6.0 * np.eye(len(ALPHABET))[next_1xL]
        return odds * (1 - spread)

    return scores


def test_the_likeliest_tokens_go_on_in_windows_of_one_shape(tokenizer):
    seen = []
    said = continuation(tokenizer, after(seen=seen), "ab", 4, count=5, temperature=0)
    assert said == "abcdefg"
    a = ALPHABET.index("a")
    windows = [[0, 1, -a, -a], [0, 1, 2, -a], [0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]]
    assert [(row - a).tolist()[0] for row in seen] == windows


def test_a_seed_gives_one_text_and_an_empty_prompt_begins_a_document(tokenizer):
    sample = partial(continuation, tokenizer, after(0.9), "a", 8, count=20)
    texts = [sample(seed=seed) for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]
    assert all(text.startswith("a") for text in texts)
    scores = after()
    assert continuation(tokenizer, scores, "", 2, count=2, temperature=0) == '!"'
    two = [" ".join(["two"] * count) for count in (22, 8)]
    assert lines("one\n\n" + "two " * 30) == ["one", *two]
    for length, temperature in [(0, 1.0), (4, -1.0)]:
        with pytest.raises(BadInput, match="expected a length of 1"):
            continuation(tokenizer, scores, "a", length, temperature=temperature)


def test_tokens_are_drawn_as_likely_and_losses_are_in_bits():
    odds = np.log([0.5, 0.0625, 0.25])
    chances = (np.arange(1000) + 0.5) / 1000
    for temperature in (1.0, 0.5):
        counts = np.bincount([draw_token(odds, temperature, one) for one in chances])
        likely = np.exp(odds / temperature)
        assert np.abs(counts / 1000 - likely / likely.sum()).max() <= 2e-3
    assert draw_token(odds, 0.0, 0.99) == 0
    odds = np.log([[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]]) + [[900.0], [-900.0]]
    assert np.allclose(surprise.bits(odds, np.array([1, 0])), [2, 3])
    assert np.allclose(surprise.bits(odds[:1], np.array([0])), [1])


def test_every_token_can_be_drawn(tokenizer, tmp_path):
    words = surprise.words(tokenizer, range(len(ALPHABET)))
    assert words[0] == END and words[ALPHABET.index("a")] == "a"
    words += [" 字", "$a$b"]
    surprise.draw(tmp_path / "a", words, np.linspace(0, 20, len(words)))
    svg = (tmp_path / "a.svg").read_text("utf-8")
    for said in ("¶", "□", "$a$b", "10.00 bits per token · perplexity 1,024.0"):
        assert f"<!-- {said} -->" in svg
    placed = surprise.place_words([" " + "x" * n for n in range(1, 60)] * 3)
    assert all(column + len(word) <= surprise.COLUMNS for _, column, word in placed)
    places = [place[:2] for place in placed]
    assert places == sorted(set(places)) and places[-1][0] == surprise.MAX_LINES - 1


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "united"]
WORDS += ["states", "of", "america", "##s", "."]
AROUND = np.array([[2, *[11] * 10, 3], [2, *[8] * 10, 3]], np.int32)


@pytest.fixture(scope="module")
def wordpiece():
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def test_a_sentence_with_one_gap_lies_in_a_window_whose_ends_and_rest_stay(wordpiece):
    tokens, at = insert_sentence(wordpiece, "The united ___ of Americas.", AROUND)
    said = [WORDS[token] for token in tokens[0]]
    assert said[: at + 1] == ["[CLS]", "the", "united", "[MASK]"]
    assert said[at + 1 : at + 5] == ["of", "america", "##s", "."]
    assert np.array_equal(tokens[:, at + 5 :], AROUND[:, at + 5 :])
    assert np.array_equal(tokens[:, 0], AROUND[:, 0])
    for sentence, message in [
        ("the united states", "one gap, ___"),
        ("___ of ___", "one gap, ___"),
        ("the ___ " + "of " * 9, "at most 10 tokens, got 11"),
    ]:
        with pytest.raises(BadInput, match=message):
            insert_sentence(wordpiece, sentence, AROUND)


def test_chances_are_means_over_windows_the_likeliest_word_first(wordpiece):
    def scores(tokens_NxL):  # by the token before and by the window's last but one
        odds_NxLxV = np.zeros((*tokens_NxL.shape, len(WORDS)))
        next_NxL = (np.roll(tokens_NxL, 1, axis=1) + 1) % len(WORDS)
        np.put_along_axis(odds_NxLxV, next_NxL[..., None], 3.0, 2)
        odds_NxLxV[tokens_NxL[:, -2] == 8, :, 5] = 4.0
        return odds_NxLxV

    (found,) = fill(wordpiece, scores, ["the united ___ of"], AROUND, count=2)
    one, e3, e4 = 1, np.exp(3), np.exp(4)
    expected = {
        "states": (e3 / (11 + e3) + e3 / (10 + e3 + e4)) / 2,
        "the": (one / (11 + e3) + e4 / (10 + e3 + e4)) / 2,
    }
    assert found.words == ("states", "the")
    assert np.allclose(found.probabilities, [expected[word] for word in found.words])


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
