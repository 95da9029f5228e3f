"""BATCH: documents as tf-idf rows, labelled +1 in some groups and -1 in all others.

A name in, (training, held out) batches of CSR matrices (float32) and labels out. The
texts are two tables of a wheel; the matrices are computed once and kept in the cache.
"""

import csv
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import numpy as np

from dml.data.archives import cache, kept
from dml.data.text.corpora import TEXT
from dml.types import BadInput, Batch

FIELDS = ("data", "indices", "indptr", "shape", "targets")  # of a batch, in the file


# Labels +1: groups with these beginnings. The split is as published: the held-out
# documents were written later.
POSITIVE = {
    # 9 of 20 groups, 47 % of 11 293 + 7 528 documents; 42 254 features
    "newsgroups": ("comp.", "sci."),
    # Reuters R52, articles of one topic only: 1 of 52 topics, 43 % of 6 533 + 2 568
    # articles; 12 163 features
    "reuters": ("earn",),
}


def documents(name: str) -> tuple[Batch, Batch]:
    """Return the training and held-out documents of a set of POSITIVE."""
    path = cache() / f"{name}.npz"
    if not path.exists():
        sources = [source._replace(lines=labelled) for source in TEXT[name]]
        _save(path, _parse(kept(f"text/{name}.tsv", sources), POSITIVE[name]))
    with np.load(path) as arrays:
        return _batch(arrays, "training"), _batch(arrays, "held_out")


def labelled(file: IO[bytes]) -> Iterator[str]:
    """Yield the lines `group<tab>words` of a table, and an empty one where it ends."""
    rows = csv.DictReader(TextIOWrapper(file, "utf-8", newline=""), delimiter="\t")
    for row in islice(rows, 2, None):  # the first two are of kinds and roles
        yield f"{row['Category']}\t{' '.join((row['Text'] or '').split())}\n"
    yield "\n"


def vectorise(training: Sequence[str], held_out: Sequence[str]) -> tuple[Any, Any]:
    """Return tf-idf rows of length 1, of the words in two training texts or more."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    made = TfidfVectorizer(min_df=2, sublinear_tf=True, dtype=np.float32)
    both = made.fit_transform(training), made.transform(held_out)
    for rows in both:
        rows.sort_indices()
    return both


def _parse(path: Path, positive: tuple[str, ...]) -> tuple[Batch, Batch]:
    tables = path.read_text(encoding="utf-8").split("\n\n")
    if len(tables) != 3:
        raise BadInput(
            f"expected two tables in {path}, got {len(tables) - 1}; remove the file, "
            "and it will be fetched again"
        )
    lines = [[line.split("\t") for line in table.split("\n")] for table in tables[:2]]
    inputs = vectorise(*([words for _, words in table] for table in lines))
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
        arrays |= {f"{name}_{k}": v for k, v in zip(FIELDS, values, strict=True)}
    with TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        part = Path(folder) / "part.npz"
        np.savez(part, **arrays)
        part.replace(path)  # whole at once: other ranks may be waiting for it


def _batch(arrays: Any, name: str) -> Batch:
    from scipy.sparse import csr_matrix

    data, indices, starts, shape, targets = (arrays[f"{name}_{k}"] for k in FIELDS)
    return Batch(csr_matrix((data, indices, starts), shape=tuple(shape)), targets)
