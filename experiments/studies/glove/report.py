"""The results of a run of GloVe: vectors, their evaluation, figures, printed lines."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dml.data.text import vocabulary
from dml.data.text.vocabulary import Vocabulary
from dml.evaluation import vectors, words
from dml.figures.word_pairs import pca_plot
from dml.runs.writers import cell
from dml.types import Embeddings


def vectors_of(state: Embeddings, count: int) -> np.ndarray:
    """Add up the two vectors of each word, as the reference does; or take its one."""
    both = state.vectors_TxD.reshape(-1, count, state.vectors_TxD.shape[1])
    return both.sum(axis=0)


def conclude(
    path: Path, known: Vocabulary, state: Embeddings, of: Sequence[str]
) -> dict[str, Any]:
    """Write vectors, map and the neighbours of some words; return the scores."""
    found = vectors_of(state, len(known.words))
    vectors.save(path, known.words, found)
    vocabulary.write(path / "vocab.txt", known)
    pca_plot(path / "words", known.words, found)
    digest = hashlib.sha256(found.tobytes()).hexdigest()
    near = words.neighbours(known.words, found, of)
    return words.evaluate(known.words, found) | {
        "vectors_sha256": digest,
        **{f"near_{word}": " ".join(others) for word, others in near.items()},
    }


def speeds(summary: Mapping[str, Any], records: int, free: bool) -> dict[str, Any]:
    """Return how long an epoch took, and the records a second, unless work was free."""
    rate = summary["examples"] / max(summary["seconds"], 1e-9)
    return {
        "records": records,
        "records_per_second": None if free else rate,
        "epoch_seconds": summary["seconds"] * records / summary["examples"],
    }


def progress(row: Mapping[str, Any], virtual: bool) -> str:
    if virtual:
        return f"loss {row['loss']:.5f}  {row['seconds']:.4f} virtual s"
    rate = row["examples"] / max(row["seconds"], 1e-9)
    return f"loss {row['loss']:.5f}  {rate / 1e6:5.1f} M records/s"


def results(summary: Mapping[str, Any]) -> str:
    """Return a few lines about a run that has ended."""
    rate = summary["records_per_second"]
    pace = "on virtual ranks" if rate is None else f"{rate / 1e6:.1f} M records/s"
    near = [
        f"{name.removeprefix('near_')}: {value}"
        for name, value in summary.items()
        if name.startswith("near_")
    ]
    templates = (
        "analogies {analogy_accuracy:.1%} of {analogy_questions}"
        "  semantic {analogy_semantic:.1%}  syntactic {analogy_syntactic:.1%}"
        "  WordSim-353 {wordsim353:.3f}  SimLex-999 {simlex999:.3f}",
        f"loss {{loss:.5f}}  {{records:,}} records  {pace}"
        "  {words_sent:,} words sent  vectors {vectors_sha256:.8}",
        "counting {cooccurrence_seconds:.1f} s  training {seconds:.1f} s"
        "  in all {total_seconds:.1f} s",
    )
    return "\n".join([*near, *(cell(summary, template) for template in templates)])
