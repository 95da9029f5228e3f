import json
import logging
import math
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from gensim.test.utils import datapath

from dml.evaluation import words as words_module
from dml.evaluation.words import (
    SEMANTIC,
    analogies,
    evaluate,
    keyed_vectors,
    neighbours,
    quiet,
)
from dml.types import BadInput

SHARES = {"analogy_accuracy", "analogy_semantic", "analogy_syntactic"}
PAIRS = {"wordsim353_pairs", "simlex999_pairs"}
KEYS = SHARES | PAIRS | {"analogy_questions", "wordsim353", "simlex999"}
KINDS = ("correct", "incorrect")


def some_questions(path, words, rng, sections=3, questions=200):
    """Questions of any letters, some with unknown words, some not even four words."""
    lines = []
    for section in range(sections):
        lines.append(f": section{section}")
        for _ in range(questions):
            four = [str(word) for word in rng.choice([*words, "nowhere"], 4)]
            lines.append(" ".join(w.upper() if rng.random() < 0.5 else w for w in four))
        lines.append("only three words")
    path.write_text("\n".join([*lines, ": empty\n"]))
    return path


def by_gensim(known, path, restrict):
    with quiet(), np.errstate(all="ignore"):
        _, sections = known.evaluate_word_analogies(str(path), restrict_vocab=restrict)
    counts = {one["section"]: [len(one[k]) for k in KINDS] for one in sections[:-1]}
    return {
        section: (right, right + wrong) for section, (right, wrong) in counts.items()
    }


def structured(V, D, rng):
    """Small grids of vectors: that many analogies hold, and many nearly tie."""
    grid = rng.integers(-1, 2, (V, D)).astype(np.float32)
    return grid + np.float32(1e-3) * rng.standard_normal((V, D)).astype(np.float32)


def ties(V, D, rng):
    return rng.integers(-1, 2, (V, D)).astype(np.float32)  # zero vectors among them


def gaussian(V, D, rng):
    return rng.standard_normal((V, D)).astype(np.float32)


def cased(V):
    """Every word in three ways of writing it."""
    return [f"{('WO', 'wO', 'wo')[i % 3]}{i // 3}" for i in range(V)]


@pytest.mark.parametrize("make", [structured, ties, gaussian])
@pytest.mark.parametrize(
    "V, D, restrict", [(4, 3, 9), (12, 4, 12), (40, 5, 30), (1500, 8, 1000)]
)
@pytest.mark.parametrize("case", [False, True])
def test_the_counts_are_those_of_gensim(tmp_path, make, V, D, restrict, case):
    rng = np.random.default_rng([V, D])
    words = cased(V) if case else [f"w{i}" for i in range(V)]
    known = keyed_vectors(words, make(V, D, rng))
    path = some_questions(tmp_path / "questions", words[:40], rng)
    assert analogies(known, path, restrict) == by_gensim(known, path, restrict)


def test_most_questions_are_answered_here_and_right_ones_are_among_them(
    tmp_path, monkeypatch
):
    rng = np.random.default_rng(0)
    V = 900
    words = [f"w{i}" for i in range(V)]
    vectors = gaussian(V, 20, rng)
    vectors[V // 2 :] = vectors[: V // 2] + gaussian(1, 20, rng)  # one offset
    vectors[-1] = 0  # nor does a word without a direction send all to gensim
    pairs = [(f"w{i}", f"w{i + V // 2}") for i in rng.choice(V // 2 - 1, 60)]
    lines = [" ".join(a + b) for a, b in zip(pairs, pairs[::-1], strict=True) if a != b]
    (tmp_path / "questions").write_text("\n".join([": offset", *lines]))
    known = keyed_vectors(words, vectors)
    expected = by_gensim(known, tmp_path / "questions", V)
    slow = Mock(wraps=words_module._by_gensim)
    monkeypatch.setattr(words_module, "_by_gensim", slow)
    scores = analogies(known, tmp_path / "questions", V)
    assert scores == expected
    assert scores["offset"][0] > 40
    assert sum(map(len, slow.call_args.args[1].values())) < 5
    (tmp_path / "questions").write_text("a b c d\n: late\n")
    with pytest.raises(BadInput, match="line 1: expected `: section`"):
        analogies(keyed_vectors(["a"], np.ones((1, 2))), tmp_path / "questions", 9)


@pytest.fixture(scope="module")
def english():
    """The words of all three sets, each with a vector of its own."""
    text = "".join(
        Path(datapath(name)).read_text("utf-8")
        for name in ("questions-words.txt", "wordsim353.tsv", "simlex999.txt")
    )
    words = sorted({word for word in text.split() if word.isalpha()})
    return words, gaussian(len(words), 6, np.random.default_rng(1))


def test_the_scores_are_those_of_gensim(english, tmp_path):
    words, vectors = english
    # the whole file takes gensim a while: a few of each section will do
    restrict = 1200
    scores = evaluate(words, vectors, restrict)
    known = keyed_vectors(words, vectors)
    expected = by_gensim(known, datapath("questions-words.txt"), restrict)
    right, asked = np.array(list(expected.values())).T
    assert asked.sum() > 10
    assert scores.keys() == KEYS
    assert scores["analogy_questions"] == asked.sum()
    assert scores["analogy_accuracy"] == right.sum() / asked.sum()
    for key, name in ("wordsim353", "wordsim353.tsv"), ("simlex999", "simlex999.txt"):
        with quiet():
            _, spearman, _ = known.evaluate_word_pairs(datapath(name))
        assert scores[key] == spearman[0] != 0
    assert scores["wordsim353_pairs"] == 353
    assert scores["simlex999_pairs"] == 999


@pytest.mark.parametrize("known", [[], ["tiger", "cat"], ["tiger", "cat", "tiger's"]])
def test_sets_without_known_words_score_none_and_make_good_json(known):
    words = ["zyx", *known]
    scores = evaluate(words, np.ones((len(words), 3), np.float32))
    counts = {name: scores.pop(name) for name in PAIRS}
    assert scores == dict.fromkeys(KEYS - PAIRS) | {"analogy_questions": 0}
    assert counts["simlex999_pairs"] == 0 and counts["wordsim353_pairs"] <= 2


@pytest.mark.parametrize("value", [0, math.nan])
def test_vectors_of_zeros_or_without_number_are_scored_too(english, value):
    words, vectors = english
    scores = evaluate(words, np.full_like(vectors, value), limit=300)
    assert scores["wordsim353"] is scores["simlex999"] is None
    json.dumps(scores, allow_nan=False)


def test_neighbours_are_the_nearest_and_kinds_of_questions_count_apart(monkeypatch):
    words = ["east", "northeast", "north", "west", "far"]
    vectors = np.array([[1, 0], [1, 1], [0, 1], [-1, 0], [90, 9]], np.float32)
    assert neighbours(words, vectors, ["east", "south", "north"], count=2) == {
        "east": ["far", "northeast"],
        "north": ["northeast", "far"],
    }
    scores = dict(zip(SEMANTIC, [(1, 1), (2, 4), (0, 1), (0, 1), (1, 1)], strict=True))
    scores |= {"gram1-adjective-to-adverb": (1, 10), "gram9-plural-verbs": (0, 10)}
    monkeypatch.setattr(words_module, "analogies", lambda *_: scores)
    result = evaluate(["a"], np.ones((1, 2), np.float32))
    kinds = ("semantic", "syntactic", "accuracy", "questions")
    found = [result[f"analogy_{kind}"] for kind in kinds]
    assert found == [4 / 8, 1 / 20, 5 / 28, 28]


def test_the_log_and_the_vectors_stay_as_they_are(english, capfd, caplog):
    words, vectors = english
    before = vectors.copy()
    with caplog.at_level(logging.INFO), caplog.at_level(logging.INFO, "gensim"):
        evaluate(words, vectors, limit=300)
        neighbours(words, vectors, words[:2])
        assert logging.getLogger("gensim").level == logging.INFO
    assert not caplog.records
    assert capfd.readouterr() == ("", "")
    assert np.array_equal(vectors, before)
