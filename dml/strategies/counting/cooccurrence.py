"""Count the co-occurrences of words on all ranks into files of records and words.

    word numbers       |--- rank 0 ---|--- rank 1 ---|--- rank 2 ---|
    counted in chunks  |----|----|----|  a chunk becomes a sorted run on disk
    merged             runs.py: every rank sums some words of all runs

The files are bit-identical for any number of ranks, memory and division into pieces.
"""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dml.data.scratch import Scratch, Spool
from dml.data.shards import bounds
from dml.data.text import cooccurrence as kernels
from dml.data.text.cooccurrence import COUNT, RECORD
from dml.data.text.vocabulary import write
from dml.strategies.counting.corpus import Corpus, Pieces, Tokens, number
from dml.strategies.counting.runs import Runs, merge
from dml.types import BadInput, Comm
from dml.wire.comm import first_of_each_host

VOCABULARY, RECORDS = "vocab.txt", "cooccurrence.bin"


class Rules(NamedTuple):
    """Rules of counting, and a limit on memory.

    Attributes:
      window: Greatest distance of two words that co-occur.
      symmetric: Whether the words after a word are its contexts, too.
      min_count: Least count of a word in the vocabulary.
      max_vocab: Greatest number of words in the vocabulary; 0: all.
      memory: Bytes of all ranks together for counting and merging. The program, a piece
        of text and the dictionaries of words need additional memory.
    """

    window: int = 15
    symmetric: bool = True
    min_count: int = 5
    max_vocab: int = 0
    memory: int = 4 << 30


class Counted(NamedTuple):
    """The totals of a count."""

    words: int  # number of words in the vocabulary
    records: int
    tokens: int  # number of words of the text, with unknown words
    documents: int


def count(
    comm: Comm, pieces: Pieces, tokens: Tokens, folder: Path, rules: Rules
) -> Counted:
    """Count into a folder that all ranks see; collective.

    Existing files are replaced at the end; if counting fails, they are kept.

    Args:
      comm: Ranks.
      pieces: Calls that return pieces of text.
      tokens: text -> words.
      folder: Receives the vocabulary and the records.
      rules: Rules of counting, and a limit on memory.
    """
    for name, least in ("window", 1), ("min_count", 1), ("max_vocab", 0):
        if getattr(rules, name) < least:
            raise BadInput(
                f"expected {name} >= {least}, got {getattr(rules, name)}; "
                f"pass --{name}={least} or more"
            )
    first_of_each_host(comm, warm)  # numba caches the kernels for the other ranks
    text, parts = folder / "tokens.part", folder / f"{RECORDS}.part"
    words = folder / f"{VOCABULARY}.part"
    with ExitStack() as stack:
        for path in text, parts, words:
            stack.callback(path.unlink, missing_ok=True)
        corpus = number(comm, pieces, tokens, text, (rules.min_count, rules.max_vocab))
        known = len(corpus.vocabulary.words)
        capacity, work = share(comm, known, rules.memory)
        with Spool(folder / "runs.part", COUNT, capacity) as spool:
            runs = tally(comm, corpus, text, rules, spool, work * COUNT.itemsize)
            records = merge(comm, runs, parts, work)
        if comm.rank == 0:
            os.truncate(
                parts, records * RECORD.itemsize
            )  # an earlier file may be longer
            write(words, corpus.vocabulary)
            words.replace(folder / VOCABULARY)
            parts.replace(folder / RECORDS)
        comm.Barrier()
    return Counted(known, records, corpus.tokens, corpus.documents)


def share(comm: Comm, words: int, memory: int) -> tuple[int, int]:
    """Return the numbers of records in a rank's memory: for runs, and for other work.

    The other work is at least a merge of the records of one word, up to one record per
    context: the records of every rank, twice, and their sum.
    """
    work = (2 * comm.size + 13) * (words + 64)
    records = memory // comm.size // COUNT.itemsize
    if records < work + words:
        least = (work + words) * comm.size * COUNT.itemsize
        raise BadInput(
            f"expected memory >= {least} bytes for {words} words on {comm.size} ranks, "
            f"got {memory}; raise --memory or --min_count"
        )
    runs = min(records // 2, records - work)
    return runs, records - runs


def tally(
    comm: Comm, corpus: Corpus, path: Path, rules: Rules, spool: Spool, nbytes: int
) -> Runs:
    """Count this rank's share of the text in chunks, each of which becomes a run.

    Args:
      comm: Ranks.
      corpus: The numbered text.
      path: File of the numbered text.
      rules: The rules of counting.
      spool: Receives the runs.
      nbytes: Memory for the work.
    """
    words = len(corpus.vocabulary.words)
    totals = np.zeros(words + 1, np.int64)
    window = kernels.Window(kernels.weights(rules.window), rules.symmetric)
    left = nbytes - 4 * totals.nbytes  # starts, units and marks, totals
    length = min(max(rules.window, left // 8), 2**31 - 1 - rules.window)
    edges, sums = [0], kernels.sums(words)
    start, stop = bounds(corpus.length, comm.rank, comm.size)
    with Scratch(path, np.int32) as text:
        for first in range(start, stop, length):
            before = min(first, rules.window)
            last = min(first + length, stop)
            chunk = text.get(first - before, last - first + before)
            index, word = kernels.index(chunk, words), 0
            while word < words:
                buffer = spool.reserve(words)
                word, used = kernels.count(index, before, window, word, sums, buffer)
                kernels.tally(spool.commit(used)["word"], totals)
            edges.append(len(spool))
            del chunk, index  # free the memory before the next chunk
    return Runs(spool, edges, totals[1:])


def warm() -> None:
    """Compile the kernels."""
    text = np.array([0, 1], np.int32)
    kernels.tally(text, np.zeros(2, np.int64))
    sums, records = kernels.sums(2), np.empty(4, COUNT)
    index = kernels.index(text, 2)
    window = kernels.Window(kernels.weights(1), True)
    _, used = kernels.count(index, 0, window, 0, sums, records)
    kernels.merge(records[:used], np.array([0, used]), 0, 2, sums, np.empty(4, COUNT))
    kernels.to_values(records[:used], records[:used].view(RECORD))
    kernels.tally(records[:used]["word"], np.zeros(3, np.int64))
