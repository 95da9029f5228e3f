"""A corpus on ranks: pieces of text in; one vocabulary and one file of numbers out.

    piece 0 1 2 3 4 …     rank r reads pieces r, r+p, … and numbers its words as they
                          come, in a file of its own
    word  ──crc32──► owner adds up its counts over the ranks, drops rare words
    owners ────────► everyone: the vocabulary
    numbers ───────► their places in the vocabulary, in one file that all ranks see

A rank's dictionary of different words stays in its memory.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np

from dml.data.scratch import Scratch
from dml.data.text.cooccurrence import END, tally
from dml.data.text.vocabulary import Vocabulary, vocabulary
from dml.types import BadInput, Comm
from dml.wire.collectives import all_to_all

Pieces = Iterable[Callable[[], str]]
Tokens = Callable[[str], list[str]]
BREAK = "\n"  # the token at a document's end; its number here is 0


class Corpus(NamedTuple):
    """The numbered text, equal on all ranks."""

    vocabulary: Vocabulary
    length: int  # known words and ends
    tokens: int  # known and unknown words
    documents: int


class Numbered(NamedTuple):
    """A rank's own pieces, its words numbered from 1 as they came."""

    words: list[str]
    counts: np.ndarray  # int64
    lengths: list[int]  # of the pieces


def number(
    comm: Comm,
    pieces: Pieces,
    tokens: Tokens,
    path: Path,
    limits: tuple[int, int],
) -> Corpus:
    """Write the corpus as numbers of words, and END, to path; collective.

    Limits are min_count and max_vocab.
    """
    with Scratch(path.with_suffix(".own"), np.int32, nameless=True) as own:
        mine = read(islice(iter(pieces), comm.rank, None, comm.size), tokens, own)
        known = agree(comm, mine, limits)
        place = {word: k for k, word in enumerate(known.words)}
        table = np.array([place.get(word, END - 1) for word in mine.words], np.int32)
        table[0] = END  # all others below 0 are unknown
        length = lay(comm, own, table, mine.lengths, path)
    totals = everyone(comm, np.array([mine.counts.sum(), mine.counts[0]]))
    all_, documents = np.sum(totals, axis=0).tolist()
    return Corpus(known, length, all_ - documents, documents)


def read(pieces: Pieces, tokens: Tokens, own: Scratch) -> Numbered:
    """Write the numbers of one piece after another; return what they stand for."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a new word gets the next number
    numbers[BREAK]
    counts, lengths, at = np.zeros(1 << 16, np.int64), [], 0
    for piece in pieces:
        found = tokens(piece())
        array = np.fromiter(map(numbers.__getitem__, found), np.int32, len(found))
        if len(numbers) > len(counts):
            counts = np.append(counts, np.zeros(len(numbers), np.int64))
        tally(array, counts)
        own.put(at, array)
        lengths.append(len(array))
        at += len(array)
    return Numbered([*numbers], counts[: len(numbers)], lengths)


def agree(comm: Comm, mine: Numbered, limits: tuple[int, int]) -> Vocabulary:
    """Add up all ranks' counts, a word at the rank of its hash; return the same to all.

    Two exchanges of every rank's different words, then one of the frequent ones.
    """
    words, counts = mine.words[1:], mine.counts[1:]
    hashes = np.fromiter((crc32(word.encode()) for word in words), np.uint32)
    shares = [np.flatnonzero(hashes % comm.size == rank) for rank in range(comm.size)]
    texts = all_to_all(comm, [pack([words[k] for k in s.tolist()]) for s in shares])
    numbers = all_to_all(comm, [counts[share] for share in shares])
    totals = add(texts, numbers)
    kept = {word: n for word, n in totals.items() if n >= limits[0]}
    texts = everyone(comm, pack([*kept]))
    numbers = everyone(comm, np.array([*kept.values()], np.int64))
    seen = sum(int(n[0]) for n in everyone(comm, np.array([len(totals)])))
    return vocabulary(add(texts, numbers), *limits, seen=seen)


def lay(
    comm: Comm, own: Scratch, table: np.ndarray, lengths: list[int], path: Path
) -> int:
    """Write own pieces' known words where they belong; return the length of all."""
    starts = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    left = np.empty(len(lengths), np.int64)
    at = 0
    for k, length in enumerate(lengths):  # they shrink, so that they fit where they are
        array = table[own.get(starts[k], length)]
        array = array[array >= END]
        own.put(at, array)
        left[k] = len(array)
        at += len(array)
    all_ = everyone(comm, left)
    order = np.zeros(sum(map(len, all_)) + 1, np.int64)
    for peer, part in enumerate(all_):
        order[1 + peer :: comm.size] = part
    places = np.cumsum(order).tolist()
    at = 0
    with Scratch(path, np.int32) as file:
        for place, length in zip(
            places[comm.rank :: comm.size], left.tolist(), strict=False
        ):
            file.put(place, own.get(at, length))
            at += length
    comm.Barrier()
    return places[-1]


def everyone(comm: Comm, mine: np.ndarray) -> list[np.ndarray]:
    """Return every rank's vector, by rank."""
    return all_to_all(comm, [mine] * comm.size)


def pack(words: list[str]) -> np.ndarray:
    """Put words into bytes, each ended by a newline."""
    text = "".join([word + "\n" for word in words])
    if text.split() != words:
        odd = next(word for word in words if word.split() != [word])
        raise BadInput(
            f"expected words without white space, got {odd!r}; pass a --pattern that "
            "matches none"
        )
    return np.frombuffer(text.encode(), np.uint8)


def add(texts: list[np.ndarray], numbers: list[np.ndarray]) -> dict[str, int]:
    """Add up the counts of packed words."""
    totals: defaultdict[str, int] = defaultdict(int)
    for text, counts in zip(texts, numbers, strict=True):
        words = text.tobytes().decode().split("\n")[:-1]
        for word, n in zip(words, counts.tolist(), strict=True):
            totals[word] += n
    return totals
