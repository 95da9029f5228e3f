"""Documents as tf-idf rows with labels +1 for some groups and -1 for all others.

Inputs are CSR matrices (float32). The texts of a data set are two tables in a Python
wheel; the matrices are computed once and cached.
"""

import csv
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from dml.data.archives import cache_folder, cached_path
from dml.data.text.corpora import TEXT
from dml.files import cached
from dml.types import BadInput, Batch

# arrays of a batch in the cache file
FIELDS = ("data", "indices", "indptr", "shape", "targets")

# Prefixes of the names of the groups with label +1. The split is the published one:
# held-out documents are newer.
POSITIVE_GROUPS = {
    # 9 of 20 groups, 47 % of 11 293 + 7 528 documents; 42 254 features
    "newsgroups": ("comp.", "sci."),
    # Reuters R52, articles of one topic only: 1 of 52 topics, 43 % of 6 533 + 2 568
    # articles; 12 163 features
    "reuters": ("earn",),
}


def documents(name: str) -> tuple[Batch, Batch]:
    """Return the (training, held-out) documents of a data set in POSITIVE_GROUPS."""

    def build(path: Path) -> None:
        sources = [source._replace(lines=labelled_lines) for source in TEXT[name]]
        texts = cached_path(f"text/{name}.tsv", sources)
        _save(path, _parse(texts, POSITIVE_GROUPS[name]))

    with np.load(cached(cache_folder() / f"{name}.npz", build)) as arrays:
        return _batch(arrays, "training"), _batch(arrays, "held_out")


def labelled_lines(file: IO[bytes]) -> Iterator[str]:
    """Yield a line `group<tab>words` per document of a table, then an empty line."""
    rows = csv.DictReader(TextIOWrapper(file, "utf-8", newline=""), delimiter="\t")
    # the first two rows contain the types and the roles of the columns
    for row in islice(rows, 2, None):
        yield f"{row['Category']}\t{' '.join((row['Text'] or '').split())}\n"
    yield "\n"


def tfidf_rows(training: Sequence[str], held_out: Sequence[str]) -> tuple[Any, Any]:
    """Return tf-idf rows of norm 1 of (training, held-out) documents.

    Words that occur in only one training document are dropped.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(min_df=2, sublinear_tf=True, dtype=np.float32)
    training_rows = vectorizer.fit_transform(training)
    held_out_rows = vectorizer.transform(held_out)
    training_rows.sort_indices()
    held_out_rows.sort_indices()
    return training_rows, held_out_rows


def _parse(path: Path, positive: tuple[str, ...]) -> tuple[Batch, Batch]:
    tables = path.read_text(encoding="utf-8").split("\n\n")
    if len(tables) != 3:
        raise BadInput(
            f"expected two tables in {path}, got {len(tables) - 1}; delete the file "
            "to download it again"
        )
    lines = [[line.split("\t") for line in table.split("\n")] for table in tables[:2]]
    inputs = tfidf_rows(*([words for _, words in table] for table in lines))
    targets = (
        np.array([1 if group.startswith(positive) else -1 for group, _ in table])
        for table in lines
    )
    training, held_out = (
        Batch(rows, labels.astype(np.float32))
        for rows, labels in zip(inputs, targets, strict=True)
    )
    return training, held_out


def _save(path: Path, batches: tuple[Batch, Batch]) -> None:
    arrays: dict[str, Any] = {}
    for name, (inputs, targets) in zip(("training", "held_out"), batches, strict=True):
        values = inputs.data, inputs.indices, inputs.indptr, inputs.shape, targets
        arrays |= {
            f"{name}_{field}": value
            for field, value in zip(FIELDS, values, strict=True)
        }
    np.savez(path, **arrays)


def _batch(arrays: Any, name: str) -> Batch:
    from scipy.sparse import csr_matrix

    data, indices, starts, shape, targets = (
        arrays[f"{name}_{field}"] for field in FIELDS
    )
    return Batch(csr_matrix((data, indices, starts), shape=tuple(shape)), targets)
