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
END = -1  # end of a document among the word numbers, which start at 0

ONE = np.uint64(1)
# Index of the only set bit by a perfect hash (Leiserson, Prokop & Randall 1998).
HASH = np.uint64(0x03F79D71B4CB0A89)
HASHED = [(0x03F79D71B4CB0A89 << bit & (2**64 - 1)) >> 58 for bit in range(64)]
PLACE = np.argsort(HASHED)


class Index(NamedTuple):
    """A chunk of text; word w is at places[starts[w] : starts[w + 1]]."""

    numbers: np.ndarray  # int32 word numbers; END at the end of a document
    places: np.ndarray  # int32
    starts: np.ndarray  # int64


class Sums(NamedTuple):
    """Sums of one word by context, and a bit mask of the nonzero sums."""

    units: np.ndarray  # uint64
    marks: np.ndarray  # uint64


def sums(words: int) -> Sums:
    return Sums(np.zeros(words, np.uint64), np.zeros(-(-words // 64), np.uint64))


def weights(window: int) -> np.ndarray:
    """Return 1 / distance in units, by distance 0 … window."""
    units = np.zeros(window + 1, np.uint64)
    units[1:] = np.rint(1 / (UNIT * np.arange(1, window + 1)))
    return units


@njit(cache=True, nogil=True)
def index(numbers: np.ndarray, words: int) -> Index:
    """Return the positions of every word."""
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
    if not sums.units[context]:
        sums.marks[context >> 6] |= ONE << np.uint64(context & 63)
    sums.units[context] += units


@njit(cache=True, nogil=True)
def drain(word, sums, records, used):
    """Append the sums of a word to the records by ascending context; reset them."""
    for group in range(len(sums.marks)):
        bits = sums.marks[group]
        while bits:
            low = bits & (~bits + ONE)
            context = 64 * group + PLACE[(low * HASH) >> np.uint64(58)]
            records[used].word = word + 1
            records[used].context = context + 1
            records[used].value = sums.units[context]
            sums.units[context] = 0
            bits ^= low
            used += 1
        sums.marks[group] = 0
    return used


@njit(cache=True, nogil=True)
def count(text, first, weights, symmetric, word, sums, records):
    """Count the pairs whose right member is at `first` or later, word by word.

    Starts with `word` and stops before the records might overflow. Returns the next
    word and the number of records used. In a one-sided window a pair belongs to its
    left member, as in the C program.
    """
    numbers, places, starts = text
    window, words, used = len(weights) - 1, len(starts) - 1, 0
    while word < words and used + words <= len(records):
        for k in range(starts[word], starts[word + 1]):
            place = places[k]
            if symmetric and place >= first:
                for other in range(place - 1, max(place - window, 0) - 1, -1):
                    if numbers[other] < 0:
                        break
                    add(sums, numbers[other], weights[place - other])
            for other in range(place + 1, min(place + window + 1, len(numbers))):
                if numbers[other] < 0:
                    break
                if other >= first:
                    add(sums, numbers[other], weights[other - place])
        used = drain(word, sums, records, used)
        word += 1
    return word, used


@njit(cache=True, nogil=True)
def merge(parts, edges, start, stop, sums, records):
    """Merge the sorted parts[edges[k] : edges[k + 1]] for words start … stop - 1.

    Returns the number of records used.
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
    """Convert units to values; `records` may be the same memory."""
    for k in range(len(counts)):
        records[k].value = counts[k].value * UNIT


@njit(cache=True, nogil=True)
def tally(numbers, totals):
    """Add to the totals the number of occurrences of each number."""
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
