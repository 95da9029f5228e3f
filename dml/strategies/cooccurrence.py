"""Text to co-occurrences on ranks: pieces in; vocab.txt, cooccurrence.bin out.

    numbers of words   |--- rank 0 ---|--- rank 1 ---|--- rank 2 ---|
    counted in chunks  |----|----|----|  each by rows of words: a sorted run on disk
    merged in slabs    rows 0 … a of all runs: a third of the records to each rank,
                       which adds up, weighs and writes them at their place

Bit for bit the same files for any number of ranks, memory and cutting into pieces.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dml.data import cooccurrence as kernels
from dml.data.cooccurrence import COUNT, RECORD, Sums
from dml.data.scratch import Scratch
from dml.data.shards import bounds
from dml.data.spool import Spool
from dml.data.vocabulary import write
from dml.strategies.corpus import Corpus, Pieces, Tokens, everyone, number
from dml.types import BadInput, Comm
from dml.wire.messages import ALLREDUCE, all_to_all

VOCABULARY, RECORDS = "vocab.txt", "cooccurrence.bin"
MOST = 1 << 21


class Rules(NamedTuple):
    """What is counted, and in how many bytes.

    `memory` is of all ranks together: for the text, index and records of counting and
    merging, not for the program, a piece of text and the dictionaries of words.
    """

    window: int = 15
    symmetric: bool = True
    min_count: int = 5
    max_vocab: int = 0  # 0: all
    memory: int = 4 << 30


class Counted(NamedTuple):
    """How much there was."""

    words: int  # in the vocabulary
    records: int
    tokens: int  # words in the text, unknown ones too
    documents: int


class Runs(NamedTuple):
    """A rank's sorted runs of COUNTs, one after another."""

    spool: Spool
    edges: list[int]
    totals: np.ndarray  # records of each word


def count(
    comm: Comm, pieces: Pieces, tokens: Tokens, folder: Path, rules: Rules
) -> Counted:
    """Count into a folder that all ranks see; collective.

    Files that lie there are replaced at the end; if it fails, they are kept.
    """
    for name, least in ("window", 1), ("min_count", 1), ("max_vocab", 0):
        if getattr(rules, name) < least:
            raise BadInput(
                f"expected {name} >= {least}, got {getattr(rules, name)}; "
                f"pass --{name}={least} or more"
            )
    warm(comm)
    text, parts = folder / "tokens.part", folder / f"{RECORDS}.part"
    words = folder / f"{VOCABULARY}.part"
    with ExitStack() as stack:
        for path in text, parts, words:
            stack.callback(path.unlink, missing_ok=True)
        corpus = number(comm, pieces, tokens, text, (rules.min_count, rules.max_vocab))
        known = len(corpus.vocabulary.words)
        memory = share(comm, known, rules.memory) // 2 // COUNT.itemsize
        with Spool(folder / "runs.part", COUNT, memory) as spool:
            runs = tally(comm, corpus, text, rules, spool)
            records = merge(comm, runs, parts, memory)
        if comm.rank == 0:
            os.truncate(parts, records * RECORD.itemsize)  # an old one may be longer
            write(words, corpus.vocabulary)
            words.replace(folder / VOCABULARY)
            parts.replace(folder / RECORDS)
        comm.Barrier()
    return Counted(known, records, corpus.tokens, corpus.documents)


def share(comm: Comm, words: int, memory: int) -> int:
    """Return a rank's bytes of memory; raise where they are too few for the words.

    Half of it holds runs, half what they are made of, or what is merged of them: at
    the least a word's records from every rank, a few times.
    """
    least = 2 * (2 * comm.size + 16) * COUNT.itemsize * (words + 64) * comm.size
    if memory < least:
        raise BadInput(
            f"expected memory >= {least} bytes for {words} words on {comm.size} ranks, "
            f"got {memory}; raise --memory or --min_count"
        )
    return memory // comm.size


def tally(comm: Comm, corpus: Corpus, path: Path, rules: Rules, spool: Spool) -> Runs:
    """Count this rank's share of the text, chunk by chunk, a run each."""
    words = len(corpus.vocabulary.words)
    totals, weights = np.zeros(words + 1, np.int64), kernels.weights(rules.window)
    left = spool.memory.nbytes - 4 * totals.nbytes  # starts, units and marks, totals
    length = min(max(rules.window, left // 8), 2**31 - 1 - rules.window)
    edges, sums = [0], kernels.sums(words)
    start, stop = bounds(corpus.length, comm.rank, comm.size)
    with Scratch(path, np.int32) as text:
        for first in range(start, stop, length):
            before = min(first, rules.window)
            last = min(first + length, stop)
            numbers = text.get(first - before, last - first + before)
            index, word = kernels.index(numbers, words), 0
            while word < words:
                room = spool.room(words)
                word, used = kernels.count(
                    index, before, weights, rules.symmetric, word, sums, room
                )
                kernels.tally(spool.keep(used)["word"], totals)
            edges.append(len(spool))
            del numbers, index  # before the next ones come
    return Runs(spool, edges, totals[1:])


def merge(comm: Comm, runs: Runs, path: Path, memory: int) -> int:
    """Merge all ranks' runs into one file of records; return how many there are.

    Memory is in records.
    """
    words, size = len(runs.totals), comm.size
    # A slab is a part sent, one received twice, one merged before and one after.
    limit = (memory - (2 * size + 12) * words) // 6
    totals, heaviest = runs.totals.copy(), runs.totals.copy()
    turns = np.array([len(runs.edges) - 1])
    ALLREDUCE["ring"](comm, totals, np.add)
    ALLREDUCE["ring"](comm, heaviest, np.maximum)
    ALLREDUCE["ring"](comm, turns, np.maximum)
    at, sums, done = list(runs.edges), kernels.sums(words), 0
    with Scratch(path, RECORD) as file:
        for start, stop in slabs(heaviest, min(limit, MOST)):
            edges = cut(totals, start, stop, size)
            merged = np.empty(0, COUNT)
            for turn in range(turns[0]):
                parts = take(runs, turn, at, edges)
                parts = all_to_all(comm, parts)
                mine = edges[comm.rank], edges[comm.rank + 1]
                merged = fuse([merged, *parts], mine, sums)
                del parts
            lengths = [int(n[0]) for n in everyone(comm, np.array([len(merged)]))]
            records = merged.view(RECORD)
            kernels.weigh(merged, records)
            file.put(done + sum(lengths[: comm.rank]), records)
            done += sum(lengths)
    comm.Barrier()
    return done


def slabs(heaviest: np.ndarray, limit: int) -> Iterator[tuple[int, int]]:
    """Cut the words so that no rank has more records of a slab than limit, or a word's.

    >>> [*slabs(np.array([5, 9, 2, 2, 2, 1]), 6)]
    [(0, 1), (1, 2), (2, 5), (5, 6)]
    """
    ends, start = np.cumsum(heaviest), 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, before + limit, "right"))
        yield start, (stop := max(stop, start + 1))
        start = stop


def cut(totals: np.ndarray, start: int, stop: int, size: int) -> list[int]:
    """Cut a slab's words into `size` ranges of about equally many records.

    >>> cut(np.array([9, 9, 4, 4, 4, 4]), 1, 6, 3)
    [1, 2, 4, 6]
    """
    ends = np.cumsum(totals[start:stop])
    goals = ends[-1] * np.arange(1, size) // size
    return [start, *(start + np.searchsorted(ends, goals, "left") + 1).tolist(), stop]


def take(runs: Runs, turn: int, at: list[int], edges: list[int]) -> list[np.ndarray]:
    """Read a slab of a run from at[turn] on, cut at edges; advance at[turn]."""
    if turn >= len(runs.edges) - 1:
        return [np.empty(0, COUNT)] * (len(edges) - 1)
    first = at[turn]
    # records have words from 1: the first beyond the slab reaches edges[-1] + 1
    stop = runs.spool.search("word", edges[-1] + 1, (first, runs.edges[turn + 1]))
    found, at[turn] = runs.spool.get(first, stop - first), stop
    inner = np.searchsorted(found["word"], np.array(edges[1:-1], np.int32) + 1)
    return np.split(found, inner)


def fuse(parts: list[np.ndarray], rows: tuple[int, int], sums: Sums) -> np.ndarray:
    """Add up sorted parts that hold records of rows[0] … rows[1] - 1."""
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else np.empty(0, COUNT)
    edges = np.cumsum([0, *map(len, parts)])
    merged = np.empty(edges[-1], COUNT)
    # as bytes: numpy copies records field by field
    joined = np.concatenate([part.view(np.uint8) for part in parts]).view(COUNT)
    used = kernels.merge(joined, edges, *rows, sums, merged)
    return merged[:used]


def warm(comm: Comm) -> None:
    """Compile the kernels on one rank of each host; the others load what it stored."""
    numbers = np.array([0, 1], np.int32)
    kernels.tally(numbers, np.zeros(2, np.int64))  # all: loading numba takes longest
    hosts = comm.hosts()
    first = hosts.index(hosts[comm.rank]) == comm.rank
    if not first:
        comm.Barrier()
    sums, records = kernels.sums(2), np.empty(4, COUNT)
    index = kernels.index(numbers, 2)
    _, used = kernels.count(index, 0, kernels.weights(1), True, 0, sums, records)
    kernels.merge(records[:used], np.array([0, used]), 0, 2, sums, np.empty(4, COUNT))
    kernels.weigh(records[:used], records[:used].view(RECORD))
    kernels.tally(records[:used]["word"], np.zeros(3, np.int64))
    if first:
        comm.Barrier()
