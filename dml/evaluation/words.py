"""Evaluate word vectors on analogies and word similarity.

Scores are equal to gensim's. Analogies are computed in blocks by matrix products, which
is many times faster than gensim's loop over questions.
"""

import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dml.types import BadInput

SEMANTIC = (
    "capital-common-countries",
    "capital-world",
    "currency",
    "city-in-state",
    "family",
)
BLOCK = 256  # questions in one matrix product
Question = tuple[str, str, str, str]  # a is to b as c is to d, in upper case
Score = tuple[int, int]  # number of correct answers, number of questions


def evaluate(
    words: Sequence[str], vectors: np.ndarray, limit: int = 30_000
) -> dict[str, float | None]:
    """Return accuracies of analogies, and Spearman correlations with human ratings.

    A score is None if the vocabulary has too few words of the data set.
    analogy_questions is the number of questions, wordsim353_pairs and simlex999_pairs
    are the numbers of rated pairs of known words.

    Args:
      words: The vocabulary, most frequent words first.
      vectors: Vector of each word.
      limit: Only the first `limit` words are used in analogies.
    """
    from gensim.test.utils import datapath

    with quiet():
        word_vectors = keyed_vectors(words, vectors)
        scores = analogies(word_vectors, datapath("questions-words.txt"), limit)
        syntactic = [name for name in scores if name.startswith("gram")]
        return {
            "analogy_accuracy": _share(scores, list(scores)),
            "analogy_semantic": _share(scores, SEMANTIC),
            "analogy_syntactic": _share(scores, syntactic),
            "analogy_questions": sum(count for _, count in scores.values()),
            **_spearman(word_vectors, "wordsim353", datapath("wordsim353.tsv")),
            **_spearman(word_vectors, "simlex999", datapath("simlex999.txt")),
        }


def neighbours(
    words: Sequence[str], vectors: np.ndarray, queries: Sequence[str], count: int = 5
) -> dict[str, list[str]]:
    """Return the words with the most similar vectors, for each query in the vocabulary.

    Args:
      words: The vocabulary.
      vectors: Vector of each word.
      queries: Words whose neighbours are returned.
      count: Number of neighbours per word, in descending order of cosine.
    """
    with quiet():
        word_vectors = keyed_vectors(words, vectors)
        return {
            word: [name for name, _ in word_vectors.most_similar(word, topn=count)]
            for word in queries
            if word in word_vectors
        }


def analogies(word_vectors: Any, path: str | Path, limit: int) -> dict[str, Score]:
    """Return the score of each section, equal to gensim's evaluate_word_analogies.

    Gensim answers the questions whose two best answers differ by less than rounding
    errors, so that scores are always equal.
    """
    sections = _questions(path)
    # by word in upper case, as in gensim; of equal words the first one is used
    rows: dict[str, int] = {}
    for row, word in enumerate(word_vectors.index_to_key[:limit]):
        rows.setdefault(word.upper(), row)
    first = np.array([rows[word.upper()] for word in word_vectors.index_to_key[:limit]])
    scores: dict[str, Score] = {}
    undecided: dict[str, list[Question]] = {}
    for section, questions in sections.items():
        questions = [
            question for question in questions if all(word in rows for word in question)
        ]
        rows_Qx4 = np.array(
            [[rows[word] for word in question] for question in questions], int
        )
        # zero vectors give NaN, and their questions are undecided
        with np.errstate(all="ignore"):
            correct, undecided_mask = _answer(
                word_vectors, first, rows_Qx4.reshape(-1, 4)
            )
        scores[section] = int(correct.sum()), len(questions)
        undecided[section] = [questions[i] for i in np.flatnonzero(undecided_mask)]
    for section, correct_by_gensim in _by_gensim(
        word_vectors, undecided, limit
    ).items():
        scores[section] = scores[section][0] + correct_by_gensim, scores[section][1]
    return scores


def keyed_vectors(words: Sequence[str], vectors: np.ndarray) -> Any:
    """Return gensim's KeyedVectors of unchanged vectors."""
    from gensim.models import KeyedVectors

    word_vectors = KeyedVectors(vectors.shape[1])
    word_vectors.add_vectors(list(words), np.asarray(vectors, np.float32))
    return word_vectors


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress gensim's log, and warnings about empty sets and zero vectors."""
    log = logging.getLogger("gensim")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _answer(
    word_vectors: Any, first: np.ndarray, rows_Qx4: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return masks of correct answers, and of answers that gensim must decide.

    Args:
      word_vectors: KeyedVectors of gensim.
      first: For each row, the first row whose word is equal in upper case.
      rows_Qx4: Rows of the words of each question.
    """
    vectors_RxD = word_vectors.vectors[: len(first)]
    norms = np.linalg.norm(vectors_RxD, axis=1)
    units_RxD = vectors_RxD / norms[:, None]
    # the error bounds of two inner products of D terms, by gensim and by this module
    tolerance = 4 * vectors_RxD.shape[1] * np.finfo(np.float32).eps
    correct, undecided = np.zeros((2, len(rows_Qx4)), bool)
    for start in range(0, len(rows_Qx4), BLOCK):
        a, b, c, expected = rows_Qx4[start : start + BLOCK].T
        targets_QxD = units_RxD[b] + units_RxD[c] - units_RxD[a]
        length = np.linalg.norm(targets_QxD, axis=1, keepdims=True)
        scores_QxR = (targets_QxD / length) @ units_RxD.T
        scores_QxR[:, norms == 0] = -np.inf
        q = np.arange(len(a))
        scores_QxR[q, a] = scores_QxR[q, b] = scores_QxR[q, c] = -np.inf
        best = scores_QxR.argmax(axis=1)
        margin = scores_QxR[q, best]
        scores_QxR[q, best] = -np.inf
        margin = margin - scores_QxR.max(axis=1)
        answer = first[best]
        # gensim skips answers that are words of the question in another case
        is_input = (answer == a) | (answer == b) | (answer == c)
        block = slice(start, start + len(a))
        undecided[block] = ~(margin > tolerance) | is_input  # also for NaN
        correct[block] = (answer == expected) & ~undecided[block]
    return correct, undecided


def _by_gensim(
    word_vectors: Any, questions: Mapping[str, Sequence[Question]], limit: int
) -> dict[str, int]:
    """Return the number of gensim's correct answers by section."""
    lines = [
        line
        for section, section_questions in questions.items()
        for line in (f": {section}", *map(" ".join, section_questions))
        if section_questions
    ]
    if not lines:
        return {}
    with TemporaryDirectory() as folder, np.errstate(all="ignore"):
        path = Path(folder, "questions.txt")
        path.write_text("\n".join(lines), encoding="utf-8")
        _, sections = word_vectors.evaluate_word_analogies(str(path), limit)
    return {
        section["section"]: len(section["correct"])
        for section in sections[:-1]  # the last one is the total
    }


def _questions(path: str | Path) -> dict[str, list[Question]]:
    """Read the questions of each section."""
    sections: dict[str, list[Question]] = {}
    section = None
    for number, line in enumerate(Path(path).read_text("utf-8").split("\n"), 1):
        if line.startswith(": "):
            section = sections.setdefault(line.lstrip(": ").strip(), [])
        elif len(fields := line.upper().split()) == 4:
            if section is None:
                raise BadInput(
                    f"{path}: line {number}: expected `: section` before the first "
                    f"question, got {line!r}; add a section"
                )
            a, b, c, d = fields
            section.append((a, b, c, d))
    return sections


def _share(scores: Mapping[str, Score], sections: Sequence[str]) -> float | None:
    correct, total = np.sum([scores[section] for section in sections], axis=0)
    return float(correct / total) if total else None


def _spearman(word_vectors: Any, name: str, path: str) -> dict[str, float | None]:
    """Return the correlation with human ratings, and the number of rated pairs."""
    try:
        _, spearman, unknown = word_vectors.evaluate_word_pairs(path)
    except ValueError:  # fewer than two pairs are known
        return {name: None, f"{name}_pairs": 0}
    lines = Path(path).read_text("utf-8").splitlines()
    pairs = sum(not line.startswith("#") for line in lines)
    score = None if math.isnan(spearman[0]) else float(spearman[0])
    return {name: score, f"{name}_pairs": round(pairs * (1 - unknown / 100))}
