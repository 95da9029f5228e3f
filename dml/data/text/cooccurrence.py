"""Count co-occurrences of words in a window; records are sorted by word and context.

Records have the format of the reference C program's co-occurrence file. Counts are
integers in units of 2**-32: their addition is associative, so the result does not
depend on the order of ranks, chunks or merges. Sums reach up to 2**32 and are exact to
2**-32.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit

from dml.types import BadInput

RECORD = np.dtype([("word", "<i4"), ("context", "<i4"), ("value", "<f8")])  # from 1
COUNT = np.dtype([("word", "<i4"), ("context", "<i4"), ("value", "<u8")])  # units
UNIT = 2.0**-32
END = -1  # number that marks the end of a document; words have numbers from 0

ONE = np.uint64(1)
# Perfect hash of a word with one set bit (Leiserson, Prokop & Randall 1998): hash of
# each bit, and bit of each hash.
HASH = np.uint64(0x03F79D71B4CB0A89)
HASHED = [(0x03F79D71B4CB0A89 << bit & (2**64 - 1)) >> 58 for bit in range(64)]
BIT = np.argsort(HASHED)


class Index(NamedTuple):
    """A chunk of text; word w is at places[starts[w] : starts[w + 1]]."""

    numbers: np.ndarray  # int32 word numbers; END at the end of a document
    places: np.ndarray  # int32 positions in numbers
    starts: np.ndarray  # int64


class Window(NamedTuple):
    """Weights by distance, and whether contexts are on both sides of a word."""

    weights: np.ndarray  # uint64 units, by distance 0 … window; see `weights`
    symmetric: bool


class Sums(NamedTuple):
    """Sums of one word by context, and a bit mask of the nonzero sums."""

    units: np.ndarray  # uint64
    marks: np.ndarray  # uint64, 64 contexts each


def sums(words: int) -> Sums:
    """Return sums of 0 for each of the words as context."""
    return Sums(np.zeros(words, np.uint64), np.zeros(-(-words // 64), np.uint64))


def weights(window: int) -> np.ndarray:
    """Return 1 / distance in units, by distance 0 … window."""
    units = np.zeros(window + 1, np.uint64)
    units[1:] = np.rint(1 / (UNIT * np.arange(1, window + 1)))
    return units


@njit(cache=True, nogil=True)
def index(numbers: np.ndarray, words: int) -> Index:
    """Return the positions of each word in a chunk of text."""
    starts = np.zeros(words + 2, np.int64)
    for number in numbers:
        if number >= 0:
            starts[number + 2] += 1
    for word in range(words):
        starts[word + 2] += starts[word + 1]
    places = np.empty(starts[words + 1], np.int32)
    for place in range(len(numbers)):
        number = numbers[place]
        if number >= 0:
            places[starts[number + 1]] = place
            starts[number + 1] += 1
    return Index(numbers, places, starts[:-1])


@njit(cache=True, nogil=True)
def add(sums, context, units):
    """Add units to the sum of a context."""
    if not sums.units[context]:
        sums.marks[context >> 6] |= ONE << np.uint64(context & 63)
    sums.units[context] += units


@njit(cache=True, nogil=True)
def drain(word, sums, records, used):
    """Append the sums of a word to the records by ascending context; zero the sums.

    Args:
      word: Number of the word.
      sums: Sums of the word by context.
      records: Receives COUNTs.
      used: Number of records before.

    Returns:
      The number of records after.
    """
    for group in range(len(sums.marks)):
        bits = sums.marks[group]
        while bits:
            low = bits & (~bits + ONE)
            context = 64 * group + BIT[(low * HASH) >> np.uint64(58)]
            records[used].word = word + 1
            records[used].context = context + 1
            records[used].value = sums.units[context]
            sums.units[context] = 0
            bits ^= low
            used += 1
        sums.marks[group] = 0
    return used


@njit(cache=True, nogil=True)
def count(text, first, window, word, sums, records):
    """Count the pairs of words of a chunk, word by word.

    Stops before the records might overflow. In a one-sided window a pair belongs to its
    left word, as in the C program.

    Args:
      text: Index of the chunk.
      first: Pairs count if the right word is at this position or later.
      window: Window of a word.
      word: First word to count.
      sums: Working memory, zero before and after.
      records: Receives COUNTs.

    Returns:
      The next word to count, and the number of records used.
    """
    weights, symmetric = window
    numbers, places, starts = text
    reach, words, used = len(weights) - 1, len(starts) - 1, 0
    while word < words and used + words <= len(records):
        for k in range(starts[word], starts[word + 1]):
            place = places[k]
            if symmetric and place >= first:
                for other in range(place - 1, max(place - reach, 0) - 1, -1):
                    if numbers[other] < 0:
                        break
                    add(sums, numbers[other], weights[place - other])
            for other in range(place + 1, min(place + reach + 1, len(numbers))):
                if numbers[other] < 0:
                    break
                if other >= first:
                    add(sums, numbers[other], weights[other - place])
        used = drain(word, sums, records, used)
        word += 1
    return word, used


@njit(cache=True, nogil=True)
def merge(parts, edges, start, stop, sums, records):
    """Add up the records of several sorted runs.

    Args:
      parts: All runs; run k is parts[edges[k] : edges[k + 1]].
      edges: Bounds of the runs.
      start: First word of the runs.
      stop: Last word of the runs plus 1.
      sums: Working memory, zero before and after.
      records: Receives the sorted result.

    Returns:
      The number of records used.
    """
    at, used = edges[:-1].copy(), 0
    for word in range(start, stop):
        for k in range(len(at)):
            place = at[k]
            while place < edges[k + 1] and parts[place].word == word + 1:
                add(sums, parts[place].context - 1, parts[place].value)
                place += 1
            at[k] = place
        used = drain(word, sums, records, used)
    return used


@njit(cache=True, nogil=True)
def weigh(counts, records):
    """Convert counts in units to values; `records` may share their memory."""
    for k in range(len(counts)):
        records[k].value = counts[k].value * UNIT


@njit(cache=True, nogil=True)
def tally(numbers, totals):
    """Add the number of occurrences of each number n to totals[n]."""
    for number in numbers:
        totals[number] += 1


def read(path: str | Path) -> np.ndarray:
    """Map a co-occurrence file into memory as RECORDs."""
    try:
        return np.memmap(path, RECORD, "r")
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{path}: expected records of {RECORD.itemsize} bytes, got {error}; pass "
            "a co-occurrence file of --corpus or of the C program's cooccur"
        ) from None
