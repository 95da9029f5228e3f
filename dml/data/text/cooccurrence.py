"""BATCH: which words stand near which; numbers of words in, sorted records out.

Records are those of the C program's co-occurrence file. While they are counted a value
is a whole number of units of 2**-32: adding those commutes, so no order of ranks,
chunks or merges shows in the result. A sum may reach 2**32 and is exact to 2**-32.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit

from dml.types import BadInput

RECORD = np.dtype([("word", "<i4"), ("context", "<i4"), ("value", "<f8")])  # from 1
COUNT = np.dtype([("word", "<i4"), ("context", "<i4"), ("value", "<u8")])  # units
UNIT = 2.0**-32
END = -1  # stands where a document ends, among the numbers of words from 0

ONE = np.uint64(1)
# The place of a lone bit, by a perfect hash of it (Leiserson, Prokop & Randall 1998).
HASH = np.uint64(0x03F79D71B4CB0A89)
HASHED = [(0x03F79D71B4CB0A89 << bit & (2**64 - 1)) >> 58 for bit in range(64)]
PLACE = np.argsort(HASHED)


class Index(NamedTuple):
    """A chunk of text; word w stands at places[starts[w] : starts[w + 1]]."""

    numbers: np.ndarray  # int32, of words; END where a document ends
    places: np.ndarray  # int32
    starts: np.ndarray  # int64


class Sums(NamedTuple):
    """One word's sums by context; a mark is a bit, set where a sum is not zero."""

    units: np.ndarray  # uint64
    marks: np.ndarray  # uint64


def sums(words: int) -> Sums:
    return Sums(np.zeros(words, np.uint64), np.zeros(-(-words // 64), np.uint64))


def weights(window: int) -> np.ndarray:
    """Return 1 / distance in units, by distance 0 … window."""
    found = np.zeros(window + 1, np.uint64)
    found[1:] = np.rint(1 / (UNIT * np.arange(1, window + 1)))
    return found


@njit(cache=True, nogil=True)
def index(numbers: np.ndarray, words: int) -> Index:
    """List where every word stands."""
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
    """Move one word's sums behind the used records, by rising context."""
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
    """Count the pairs whose right member stands at `first` or later, word by word.

    Begin with `word`; stop where the next one might overfill the records. Return that
    next word and the number of records used. In a one-sided window a pair belongs to
    its left member, as in the C program's.
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
    """Add up sorted parts, parts[edges[k] : edges[k + 1]], of words start … stop - 1.

    Return the number of records used.
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
    """Turn units into values; records may be the same memory."""
    for k in range(len(counts)):
        records[k].value = counts[k].value * UNIT


@njit(cache=True, nogil=True)
def tally(numbers, totals):
    """Add one to the total of every number from 0."""
    for number in numbers:
        totals[number] += 1


def read(path: str | Path) -> np.ndarray:
    """Map a co-occurrence file, ours or the C program's, as RECORDs."""
    try:
        return np.memmap(path, RECORD, "r")
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{path}: expected records of {RECORD.itemsize} bytes, got {error}; pass "
            "a co-occurrence file of --corpus or of the C program's cooccur"
        ) from None
