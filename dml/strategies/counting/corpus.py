"""A corpus on ranks: pieces of text in; a vocabulary and a file of word numbers out.

    piece 0 1 2 3 4 …     rank r reads pieces r, r+p, … and numbers words in the order
                          of their first use, in a file per rank
    word  ──crc32──► owner sums the counts of all ranks, drops rare words
    owners ────────► all ranks: the vocabulary
    numbers ───────► positions in the vocabulary, in one file that all ranks see

A rank stores a dictionary of its distinct words in memory.
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
    length: int  # number of known words and of ends of documents
    tokens: int  # number of known and unknown words
    documents: int  # number of documents


class Numbered(NamedTuple):
    """The pieces of a rank; words are numbered from 1 in order of their first use."""

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
    """Write the corpus to `path` as positions in the vocabulary, and END; collective.

    Args:
      comm: Ranks.
      pieces: Calls that return pieces of text.
      tokens: text -> words.
      path: File that all ranks see.
      limits: Least count of a word, and largest number of words in the vocabulary.
    """
    with Scratch(path.with_suffix(".own"), np.int32, unnamed=True) as own:
        numbered = read_pieces(
            islice(iter(pieces), comm.rank, None, comm.size), tokens, own
        )
        known = common_vocabulary(comm, numbered, limits)
        position = {word: k for k, word in enumerate(known.words)}
        table = [position.get(word, END - 1) for word in numbered.words]
        table[0] = END  # other negative numbers are unknown words
        length = write_known(
            comm, own, np.array(table, np.int32), numbered.lengths, path
        )
    totals = gather_vectors(comm, np.array([numbered.counts.sum(), numbered.counts[0]]))
    all_, documents = np.sum(totals, axis=0).tolist()
    return Corpus(known, length, all_ - documents, documents)


def read_pieces(pieces: Pieces, tokens: Tokens, own: Scratch) -> Numbered:
    """Write the word numbers of each piece; return the words and their counts."""
    number_of: defaultdict[str, int] = defaultdict()
    number_of.default_factory = number_of.__len__  # a new word gets the next number
    number_of[BREAK]
    counts, lengths, at = np.zeros(1 << 16, np.int64), [], 0
    for piece in pieces:
        words = tokens(piece())
        array = np.fromiter(map(number_of.__getitem__, words), np.int32, len(words))
        if len(number_of) > len(counts):
            counts = np.append(counts, np.zeros(len(number_of), np.int64))
        tally(array, counts)
        own.put(at, array)
        lengths.append(len(array))
        at += len(array)
    return Numbered([*number_of], counts[: len(number_of)], lengths)


def common_vocabulary(
    comm: Comm, numbered: Numbered, limits: tuple[int, int]
) -> Vocabulary:
    """Sum the counts of all ranks; return the vocabulary.

    A word's owner is the rank given by its hash. Each rank sends its distinct words and
    their counts to the owners, which send the frequent words and sums to all ranks.
    """
    words, counts = numbered.words[1:], numbered.counts[1:]
    hashes = np.fromiter((crc32(word.encode()) for word in words), np.uint32)
    shares = [np.flatnonzero(hashes % comm.size == rank) for rank in range(comm.size)]
    texts = all_to_all(comm, [pack([words[k] for k in s.tolist()]) for s in shares])
    parts = all_to_all(comm, [counts[share] for share in shares])
    totals = add_counts(texts, parts)
    frequent = {word: n for word, n in totals.items() if n >= limits[0]}
    texts = gather_vectors(comm, pack([*frequent]))
    parts = gather_vectors(comm, np.array([*frequent.values()], np.int64))
    seen = sum(int(n[0]) for n in gather_vectors(comm, np.array([len(totals)])))
    return vocabulary(add_counts(texts, parts), *limits, distinct=seen)


def write_known(
    comm: Comm, own: Scratch, table: np.ndarray, lengths: list[int], path: Path
) -> int:
    """Write this rank's known words into `path`; return the total length.

    Args:
      comm: Ranks.
      own: File with the word numbers of this rank's pieces.
      table: Position in the vocabulary of each word number.
      lengths: Lengths of the pieces.
      path: File that all ranks see.
    """
    starts = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    left = np.empty(len(lengths), np.int64)
    at = 0
    for k, length in enumerate(lengths):  # in place: pieces only shrink
        array = table[own.get(starts[k], length)]
        array = array[array >= END]
        own.put(at, array)
        left[k] = len(array)
        at += len(array)
    all_ = gather_vectors(comm, left)
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


def gather_vectors(comm: Comm, vector: np.ndarray) -> list[np.ndarray]:
    """Return every rank's vector, by rank."""
    return all_to_all(comm, [vector] * comm.size)


def pack(words: list[str]) -> np.ndarray:
    """Encode words as bytes, each followed by a newline."""
    text = "".join([word + "\n" for word in words])
    if text.split() != words:
        odd = next(word for word in words if word.split() != [word])
        raise BadInput(
            f"expected words without white space, got {odd!r}; pass a --pattern that "
            "matches no white space"
        )
    return np.frombuffer(text.encode(), np.uint8)


def add_counts(texts: list[np.ndarray], parts: list[np.ndarray]) -> dict[str, int]:
    """Sum the counts of packed words."""
    totals: defaultdict[str, int] = defaultdict(int)
    for text, counts in zip(texts, parts, strict=True):
        words = text.tobytes().decode().split("\n")[:-1]
        for word, n in zip(words, counts.tolist(), strict=True):
            totals[word] += n
    return totals
