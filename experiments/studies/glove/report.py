"""The results of a run of GloVe: vectors, their evaluation, figures, printed lines."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dml.data.text import vocabulary
from dml.data.text.vocabulary import Vocabulary
from dml.evaluation import vectors, words
from dml.figures.word_pairs import pca_plot
from dml.runs.results import Run
from dml.runs.writers import cell
from dml.types import Comm, Embeddings
from dml.wire.collectives import tree_allreduce


def word_vectors(state: Embeddings, count: int) -> np.ndarray:
    """Return the sum of a word's vectors in all tables, N x D.

    Args:
      state: Trained embeddings of one or two tables.
      count: Number of words N.
    """
    tables_KxNxD = state.vectors_TxD.reshape(-1, count, state.vectors_TxD.shape[1])
    return tables_KxNxD.sum(axis=0)


def conclude(
    path: Path, known: Vocabulary, state: Embeddings, examples: str
) -> dict[str, Any]:
    """Write vectors, state, vocabulary and PCA plot; return scores and neighbours.

    Args:
        path: run folder.
        known: vocabulary.
        state: trained embeddings.
        examples: comma-separated words whose neighbours are returned.
    """
    word_table = word_vectors(state, len(known.words))
    vectors.save(path, known.words, word_table)
    write_state(path, state, len(known.words))
    vocabulary.write(path / "vocab.txt", known)
    pca_plot(path / "words", known.words, word_table)
    digest = hashlib.sha256(word_table.tobytes()).hexdigest()
    chosen = list(filter(None, examples.split(",")))
    neighbours = words.neighbours(known.words, word_table, chosen)
    unknown = [word for word in chosen if word not in neighbours]
    return words.evaluate(known.words, word_table) | {
        "vectors_sha256": digest,
        **{f"near_{word}": " ".join(others) for word, others in neighbours.items()},
        "unknown_words": ", ".join(unknown),
    }


def write_state(path: Path, state: Embeddings, count: int) -> None:
    """Write the files with which the C program of GloVe continues the training.

    parameters.bin is for -load-init-param, squares.bin (AdaGrad's sums of squared
    gradients) for -load-init-gradsq. The C program always has two tables; the rows of
    one table are written twice.

    Args:
      path: Run folder.
      state: Trained embeddings of one or two tables.
      count: Number of words.
    """
    words, contexts = slice(count), slice(-count, None)
    files = {"parameters.bin": state[:2], "squares.bin": state[2:]}
    for name, (rows_TxD, bias_T) in files.items():
        vectors.save_state(
            path / name,
            rows_TxD[words],
            bias_T[words],
            rows_TxD[contexts],
            bias_T[contexts],
        )


def total(comm: Comm, count: int) -> int:
    """Return the sum of a count over all ranks."""
    counts = np.array([count])
    tree_allreduce(comm, counts)
    return int(counts[0])


def speeds(summary: Mapping[str, Any], records: int, timeless: bool) -> dict[str, Any]:
    """Return seconds per epoch, and records per second.

    The rate is None if `timeless`: computation takes no virtual time.
    """
    examples = summary["examples"]  # 0 if only the summary was missing
    rate = examples / max(summary["seconds"], 1e-9)
    return {
        "records": records,
        "records_per_second": None if timeless else rate,
        "epoch_seconds": summary["seconds"] * records / max(examples, 1),
    }


def progress(row: Mapping[str, Any], virtual: bool) -> str:
    if virtual:
        return f"loss {row['loss']:.5f}  {row['seconds']:.4f} virtual s"
    rate = row["examples"] / max(row["seconds"], 1e-9)
    return f"loss {row['loss']:.5f}  {rate / 1e6:5.1f} M records/s"


def conclude_run(run: Run) -> str:
    """Return the conclusion of a run."""
    summary = run.summary
    unit = "virtual s" if summary["virtual"] else "s"
    return cell(
        summary,
        f"Trained {{epochs}} epochs in {{seconds:.3g}} {unit}: loss {{loss:.4f}}, "
        "{analogy_accuracy:.1%} of {analogy_questions:,} analogies correct.",
    )


def results(summary: Mapping[str, Any]) -> str:
    """Return the printed conclusion of a run."""
    rate = summary["records_per_second"]
    speed = "on virtual ranks" if rate is None else f"{rate / 1e6:.1f} M records/s"
    unit = "virtual s" if summary.get("virtual") else "s"
    sent = "no words sent in messages"
    if summary["words_sent"]:
        sent = f"{summary['words_sent']:,} words sent"
    neighbours = [
        f"{name.removeprefix('near_')}: {value}"
        for name, value in summary.items()
        if name.startswith("near_")
    ]
    if unknown := summary["unknown_words"]:
        neighbours.append(f"not in the vocabulary: {unknown}")
    templates = (
        "analogies {analogy_accuracy:.1%} of {analogy_questions}"
        "  semantic {analogy_semantic:.1%}  syntactic {analogy_syntactic:.1%}"
        "\nWordSim-353 {wordsim353:.3f} ({wordsim353_pairs} pairs)"
        "  SimLex-999 {simlex999:.3f} ({simlex999_pairs} pairs)",
        f"loss {{loss:.5f}}  {{records:,}} records  {speed}"
        f"  {sent}  vectors {{vectors_sha256:.8}}",
        f"counting {{cooccurrence_seconds:.1f}} s  training {{seconds:.3g}} {unit}"
        "  total {total_seconds:.1f} s",
    )
    return "\n".join(
        [*neighbours, *(cell(summary, template) for template in templates)]
    )
