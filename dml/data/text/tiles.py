"""BATCH: co-occurrence records in an order that caches and ranks like; from counts.

              contexts
            ┌────┬────┬────┐   The words are dealt to blocks of equal records, so that
     words  │cell│    │    │   a cell, one block of words by one of contexts, shares no
            ├────┼────┼────┤   row with a cell that has neither. A cell is cut into
            │    │▦▦▦▦│    │   tiles, few enough rows for a cache, taken in shuffled
            └────┴────┴────┘   order, and the records of a tile lie shuffled.

The order depends on the seed alone, not on ranks. A record takes 12 bytes.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numba import njit

from dml.types import BadInput

CACHE_BYTES = 640 << 10  # of rows on each side of a tile: both fit in a core's cache
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
Cell = tuple[int, int]  # a block of words, a block of contexts


class Blocks(NamedTuple):
    """Where each word's row is: blocks are consecutive rows, strips parts of them."""

    row: np.ndarray  # of each word
    edges: np.ndarray  # block b has rows edges[b] to edges[b + 1]
    strip: np.ndarray  # of each word
    offset: np.ndarray  # of each word's row in its strip
    strips: np.ndarray  # the first row of each strip
    owner: np.ndarray  # the block of each strip


class Grid(NamedTuple):
    """The tiles in the order in which they are taken, cell after cell."""

    place: np.ndarray  # of the tile of two strips, S x S; -1 where it is left out
    words: np.ndarray  # the first word's row of each tile
    contexts: np.ndarray  # the first context's row of each tile
    cells: dict[Cell, slice]  # the tiles of each


class Tiles(NamedTuple):
    """All records, tile after tile."""

    starts: np.ndarray  # tile t has records starts[t] to starts[t + 1]
    grid: Grid
    words: np.ndarray  # uint16: what to add to the first word's row of the tile
    contexts: np.ndarray  # uint16
    logs: np.ndarray  # float32: log N
    weights: np.ndarray  # float32: w(N)


def tile_rows(row_bytes: int) -> int:
    """Return how many rows a tile has on each side."""
    return 1 << max(4, min(16, (CACHE_BYTES // row_bytes).bit_length() - 1))


def deal(records: np.ndarray, count: int, rows: int) -> Blocks:
    """Deal words into count blocks of equal records, and cut these into strips of rows.

    The word with the most records comes first, each to the block with the fewest.
    """
    if not 1 <= count <= len(records):
        raise BadInput(
            f"expected 1 to {len(records)} blocks of words, got {count}; pass "
            f"--blocks=<at most {len(records)}>"
        )
    block = np.empty(len(records), np.int64)
    assign(np.argsort(-records, kind="stable"), records, np.zeros(count), block)
    by_block = np.argsort(block, kind="stable")
    row = np.empty_like(by_block)
    row[by_block] = np.arange(len(row))
    edges = np.searchsorted(block[by_block], np.arange(count + 1))
    starts = [np.arange(edges[b], edges[b + 1], rows) for b in range(count)]
    strips = np.concatenate(starts)
    strip = np.searchsorted(strips, row, "right") - 1
    owner = np.repeat(np.arange(count), [len(start) for start in starts])
    offset = (row - strips[strip]).astype(np.uint16)
    return Blocks(row, edges, strip, offset, strips, owner)


@njit(cache=True)
def assign(order, records, loads, block):
    """Assign words, in this order, to the block with the fewest records so far."""
    for word in order:
        least = np.argmin(loads)
        block[word] = least
        loads[least] += records[word]


def grid(blocks: Blocks, cells: Iterable[Cell], tables: int, seed: int) -> Grid:
    """Order the tiles: cells as they come, the tiles of each shuffled."""
    count = len(blocks.strips)
    place = np.full((count, count), -1, np.int32)
    below = len(blocks.row) if tables == 2 else 0  # contexts' rows come after words'
    words, contexts, spans, done = [], [], {}, 0
    for b, c in cells:
        pairs = np.stack(
            np.meshgrid(
                np.flatnonzero(blocks.owner == b),
                np.flatnonzero(blocks.owner == c),
                indexing="ij",
            ),
            axis=-1,
        ).reshape(-1, 2)
        np.random.default_rng([seed, b, c]).shuffle(pairs)
        place[pairs[:, 0], pairs[:, 1]] = done + np.arange(len(pairs))
        spans[b, c] = slice(done, done + len(pairs))
        words.append(blocks.strips[pairs[:, 0]])
        contexts.append(blocks.strips[pairs[:, 1]] + below)
        done += len(pairs)
    return Grid(place, np.concatenate(words), np.concatenate(contexts), spans)


def histogram(words: np.ndarray, contexts: np.ndarray, count: int) -> np.ndarray:
    """Return how many of the records each word is in, as word or as context."""
    for numbers in words, contexts:
        if len(numbers) and not 1 <= numbers.min() <= numbers.max() <= count:
            raise BadInput(
                f"expected records of words 1 to {count}, got {numbers.min()} to "
                f"{numbers.max()}; pass the vocab.txt that they were counted with"
            )
    each = np.bincount(words, minlength=count + 1)
    return (each + np.bincount(contexts, minlength=count + 1))[1:]


@njit(cache=True, nogil=True)
def sizes(records, strip, place, alone, found):
    """Count the records of each tile; alone leaves out words that meet themselves."""
    words, contexts = records
    for k in range(len(words)):
        word, context = words[k] - 1, contexts[k] - 1
        if not (alone and word == context):
            found[place[strip[word], strip[context]]] += 1


@njit(cache=True, nogil=True)
def put(records, values, where, alone, at, out):
    """Write records to their tiles, from at[tile] on; logs hold the counts yet."""
    words, contexts = records
    strip, offset, place = where
    out_words, out_contexts, out_logs = out
    for k in range(len(words)):
        word, context = words[k] - 1, contexts[k] - 1
        if not (alone and word == context):
            tile = place[strip[word], strip[context]]
            n = at[tile]
            at[tile] = n + 1
            out_words[n], out_contexts[n] = offset[word], offset[context]
            out_logs[n] = values[k]


@njit(inline="always")
def mixed(z):
    """Return a random number: splitmix64 (Steele 2014), the same on every machine."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def shuffle(starts, tiles, seed, out):
    """Shuffle the records of these tiles, each by its own stream of random numbers."""
    words, contexts, logs = out
    for t in tiles:
        state = mixed(np.uint64(seed) * GOLDEN) ^ mixed(np.uint64(t))
        for n in range(starts[t + 1] - 1, starts[t], -1):
            state += GOLDEN
            m = starts[t] + np.int64(mixed(state) % np.uint64(n + 1 - starts[t]))
            words[n], words[m] = words[m], words[n]
            contexts[n], contexts[m] = contexts[m], contexts[n]
            logs[n], logs[m] = logs[m], logs[n]
