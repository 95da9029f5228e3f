"""Count co-occurrences of words in a window; records are sorted by word and context.

Records have the format of the co-occurrence file of GloVe's reference program in C.
While counting, values are integers in units of 2**-32: their addition is associative,
so the result does not depend on the order of ranks, chunks or merges. Sums are below
2**32; each addend is rounded to 2**-32.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit

from dml.types import BadInput

# in both dtypes, words and contexts are numbered from 1; elsewhere from 0
RECORD = np.dtype([("word", "<i4"), ("context", "<i4"), ("value", "<f8")])
COUNT = np.dtype([("word", "<i4"), ("context", "<i4"), ("value", "<u8")])  # in units
UNIT = 2.0**-32
END = -1  # marks the end of a document in the numbers of a text

ONE = np.uint64(1)
# Perfect hash that finds the position of the only set bit of an integer (Leiserson,
# Prokop & Randall 1998): BIT[hash] is the position.
FACTOR = 0x03F79D71B4CB0A89
HASHES = [(FACTOR << bit & (2**64 - 1)) >> 58 for bit in range(64)]
BIT = np.argsort(HASHES)
MULTIPLIER = np.uint64(FACTOR)


class Index(NamedTuple):
    """A chunk of text; word w is at positions[starts[w] : starts[w + 1]]."""

    numbers: np.ndarray  # int32 word numbers; END at the end of a document
    positions: np.ndarray  # int32 positions in numbers
    starts: np.ndarray  # int64


class Window(NamedTuple):
    """Weights by distance; contexts are on both sides of a word, or to its right."""

    weights: np.ndarray  # uint64, result of `weights`
    symmetric: bool


class Sums(NamedTuple):
    """Sums of one word by context, and a bit mask of the nonzero sums."""

    units: np.ndarray  # uint64
    masks: np.ndarray  # uint64; bit b of masks[k] stands for context 64 k + b


def sums(words: int) -> Sums:
    """Return zero sums for a number of words as contexts."""
    return Sums(np.zeros(words, np.uint64), np.zeros(-(-words // 64), np.uint64))


def weights(window: int) -> np.ndarray:
    """Return the weight of a pair, 1 / distance in units, by distance 0 … window."""
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
    positions = np.empty(starts[words + 1], np.int32)
    for position in range(len(numbers)):
        number = numbers[position]
        if number >= 0:
            positions[starts[number + 1]] = position
            starts[number + 1] += 1
    return Index(numbers, positions, starts[:-1])


@njit(cache=True, nogil=True)
def add(sums, context, units):
    """Add units to the sum of a context."""
    if not sums.units[context]:
        sums.masks[context >> 6] |= ONE << np.uint64(context & 63)
    sums.units[context] += units


@njit(cache=True, nogil=True)
def drain(word, sums, records, used):
    """Append the nonzero sums of a word to the records by context; zero the sums.

    Args:
      word: Number of the word.
      sums: Sums of the word by context.
      records: Array of COUNT that receives the sums.
      used: Number of records already in the array.

    Returns:
      The number of records in the array.
    """
    for k in range(len(sums.masks)):
        bits = sums.masks[k]
        while bits:
            low = bits & (~bits + ONE)  # the lowest set bit
            context = 64 * k + BIT[(low * MULTIPLIER) >> np.uint64(58)]
            records[used].word = word + 1
            records[used].context = context + 1
            records[used].value = sums.units[context]
            sums.units[context] = 0
            bits ^= low
            used += 1
        sums.masks[k] = 0
    return used


@njit(cache=True, nogil=True)
def count(text, first, window, word, sums, records):
    """Count the pairs of words of a chunk, word by word.

    Stops when the array of records might be too short for the next word. In a one-sided
    window the first word of a pair is the word and the second its context, as in the C
    program.

    Args:
      text: Index of the chunk.
      first: Position from which the second word of a pair counts; pairs that end before
        it belong to the previous chunk.
      window: Window of a word.
      word: First word to count.
      sums: Working memory, zero before and after.
      records: Array of COUNT that receives the sums.

    Returns:
      The next word to count, and the number of records in the array.
    """
    weights, symmetric = window
    numbers, positions, starts = text
    max_distance, words = len(weights) - 1, len(starts) - 1
    used = 0
    while word < words and used + words <= len(records):
        for k in range(starts[word], starts[word + 1]):
            position = positions[k]
            if symmetric and position >= first:
                left = max(position - max_distance, 0)
                for other in range(position - 1, left - 1, -1):
                    if numbers[other] < 0:
                        break
                    add(sums, numbers[other], weights[position - other])
            right = min(position + max_distance, len(numbers) - 1)
            for other in range(position + 1, right + 1):
                if numbers[other] < 0:
                    break
                if other >= first:
                    add(sums, numbers[other], weights[other - position])
        used = drain(word, sums, records, used)
        word += 1
    return word, used


@njit(cache=True, nogil=True)
def merge(runs, edges, start, stop, sums, records):
    """Merge sorted runs; records of equal word and context are added.

    Args:
      runs: Array of COUNT; run k is runs[edges[k] : edges[k + 1]].
      edges: Bounds of the runs.
      start: First word of the runs.
      stop: Last word of the runs plus 1.
      sums: Working memory, zero before and after.
      records: Array of COUNT that receives the sorted result.

    Returns:
      The number of records in the array; -1 - n if record n of the runs is not sorted,
      or has a word or context that is out of range.
    """
    next_record, used = edges[:-1].copy(), 0  # per run, in total
    for word in range(start, stop):
        for k in range(len(next_record)):
            n = next_record[k]
            while n < edges[k + 1] and runs[n].word == word + 1:
                context = runs[n].context - 1
                if not 0 <= context < len(sums.units):
                    return -1 - n
                add(sums, context, runs[n].value)
                n += 1
            next_record[k] = n
        used = drain(word, sums, records, used)
    for k in range(len(next_record)):
        if next_record[k] < edges[k + 1]:
            return -1 - next_record[k]
    return used


@njit(cache=True, nogil=True)
def to_values(counts, records):
    """Convert COUNTs to RECORDs, which may share their memory."""
    for k in range(len(counts)):
        records[k].value = counts[k].value * UNIT


@njit(cache=True, nogil=True)
def tally(numbers, totals):
    """Add the number of occurrences of each n in `numbers` to totals[n]."""
    for number in numbers:
        totals[number] += 1


def read(path: str | Path) -> np.ndarray:
    """Map a co-occurrence file into memory as RECORDs."""
    try:
        return np.memmap(path, RECORD, "r")
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{path}: expected records of {RECORD.itemsize} bytes, got {error}; pass "
            "a cooccurrence.bin that dml or the cooccur of GloVe has written"
        ) from None
