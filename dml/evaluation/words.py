"""Evaluate word vectors on analogies and word similarity.

Scores are those of gensim. Analogies are computed in blocks by matrix products, many
times faster than in gensim, which computes them one by one.
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
    words: Sequence[str], vectors: np.ndarray, restrict: int = 30_000
) -> dict[str, float | None]:
    """Return accuracies of analogies, and Spearman correlations with human ratings.

    Questions and answers of analogies are limited to the first `restrict` words. A
    score is None if the vocabulary has too few words of the data set.
    analogy_questions is the number of questions.
    """
    from gensim.test.utils import datapath

    with quiet():
        known = keyed(words, vectors)
        scores = analogies(known, datapath("questions-words.txt"), restrict)
        syntactic = [name for name in scores if name.startswith("gram")]
        return {
            "analogy_accuracy": _share(scores, list(scores)),
            "analogy_semantic": _share(scores, SEMANTIC),
            "analogy_syntactic": _share(scores, syntactic),
            "analogy_questions": sum(asked for _, asked in scores.values()),
            "wordsim353": _spearman(known, datapath("wordsim353.tsv")),
            "simlex999": _spearman(known, datapath("simlex999.txt")),
        }


def neighbours(
    words: Sequence[str], vectors: np.ndarray, of: Sequence[str], count: int = 5
) -> dict[str, list[str]]:
    """Return the nearest words of each word in `of` that the vocabulary has.

    Args:
      words: The vocabulary.
      vectors: Vector of each word.
      of: Words whose neighbours are returned.
      count: Number of neighbours, by descending cosine.
    """
    with quiet():
        known = keyed(words, vectors)
        return {
            word: [name for name, _ in known.most_similar(word, topn=count)]
            for word in of
            if word in known
        }


def analogies(known: Any, path: str | Path, restrict: int) -> dict[str, Score]:
    """Return the score of each section, equal to gensim's evaluate_word_analogies.

    Questions whose two best answers differ by less than rounding errors are answered by
    gensim, so the counts are always equal.
    """
    sections = _questions(path)
    rows: dict[str, int] = {}  # in upper case, as in gensim; the first word is used
    for row, word in enumerate(known.index_to_key[:restrict]):
        rows.setdefault(word.upper(), row)
    first = np.array([rows[word.upper()] for word in known.index_to_key[:restrict]])
    scores: dict[str, Score] = {}
    unsure: dict[str, list[Question]] = {}
    for section, questions in sections.items():
        questions = [each for each in questions if all(word in rows for word in each)]
        rows_Qx4 = np.array([[rows[word] for word in each] for each in questions], int)
        with np.errstate(all="ignore"):  # zero vectors give NaN, which is unsure
            correct, doubtful = _answer(known, first, rows_Qx4.reshape(-1, 4))
        scores[section] = int(correct.sum()), len(questions)
        unsure[section] = [questions[i] for i in np.flatnonzero(doubtful)]
    for section, more in _by_gensim(known, unsure, restrict).items():
        scores[section] = scores[section][0] + more, scores[section][1]
    return scores


def keyed(words: Sequence[str], vectors: np.ndarray) -> Any:
    """Return gensim's KeyedVectors of unchanged vectors."""
    from gensim.models import KeyedVectors

    known = KeyedVectors(vectors.shape[1])
    known.add_vectors(list(words), np.asarray(vectors, np.float32))
    return known


@contextmanager
def quiet() -> Iterator[None]:
    """Silence gensim's log, and warnings of empty sets and zero vectors."""
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
    known: Any, first: np.ndarray, rows_Qx4: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return masks of correct answers and of answers that gensim must decide.

    Args:
      known: Vectors by word.
      first: Row of the first word that is equal but for case, by row.
      rows_Qx4: Rows of the words of each question.
    """
    vectors_RxD = known.vectors[: len(first)]
    norms = np.linalg.norm(vectors_RxD, axis=1)
    units_RxD = vectors_RxD / norms[:, None]
    # twice the error bound of a product of D terms, for gensim and for this module
    close = 4 * vectors_RxD.shape[1] * np.finfo(np.float32).eps
    correct, unsure = np.zeros((2, len(rows_Qx4)), bool)
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
        # gensim skips answers that equal an input in another case (Paris, PARIS)
        is_input = (answer == a) | (answer == b) | (answer == c)
        block = slice(start, start + len(a))
        unsure[block] = ~(margin > close) | is_input  # a margin of NaN is unsure
        correct[block] = (answer == expected) & ~unsure[block]
    return correct, unsure


def _by_gensim(
    known: Any, questions: Mapping[str, Sequence[Question]], restrict: int
) -> dict[str, int]:
    """Return the number of gensim's correct answers by section."""
    lines = [
        line
        for section, asked in questions.items()
        for line in (f": {section}", *map(" ".join, asked))
        if asked
    ]
    if not lines:
        return {}
    with TemporaryDirectory() as folder, np.errstate(all="ignore"):
        path = Path(folder, "questions.txt")
        path.write_text("\n".join(lines), encoding="utf-8")
        _, sections = known.evaluate_word_analogies(str(path), restrict)
    return {each["section"]: len(each["correct"]) for each in sections[:-1]}


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


def _spearman(known: Any, path: str) -> float | None:
    try:
        _, spearman, _ = known.evaluate_word_pairs(path)
    except ValueError:  # fewer than two pairs are known
        return None
    return None if math.isnan(spearman[0]) else float(spearman[0])
