"""Order co-occurrence records by cells, for ranks, and by tiles, for caches.

              contexts
            ┌────┬────┬────┐   Words are assigned to blocks with equal numbers of
     words  │cell│    │    │   records. A cell is a block of words by a block of
            ├────┼────┼────┤   contexts; cells without a common block share no row. A
            │    │▦▦▦▦│    │   cell has tiles, whose rows fit in a cache; tiles of a
            └────┴────┴────┘   cell and records of a tile are in random order.

A row is the vector of a word in the table of parameters. A strip is a range of
consecutive rows of a block; a tile is a strip of words by a strip of contexts. The
order depends on the seed, not on the number of ranks. A record takes 12 bytes.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numba import njit

from dml.types import BadInput
from dml.wire.plans import splitmix
from dml.wire.plans.splitmix import GOLDEN

CACHE_BYTES = 640 << 10  # for the rows of a strip; two strips fit in a core's cache
Cell = tuple[int, int]  # a block of words, a block of contexts


class Blocks(NamedTuple):
    """Assignment of words to rows, of rows to strips and of strips to blocks.

    Attributes:
      row: Row of each word.
      edges: Bounds of the blocks: block b has rows edges[b] … edges[b + 1] - 1.
      strip: Strip of each word.
      offset: Row of each word, relative to the first row of its strip.
      strips: First row of each strip.
      owner: Block of each strip.
    """

    row: np.ndarray
    edges: np.ndarray
    strip: np.ndarray
    offset: np.ndarray
    strips: np.ndarray
    owner: np.ndarray


class Grid(NamedTuple):
    """Tiles in the order of training, cell by cell."""

    tile: np.ndarray  # number of the tile of (strip of words, strip of contexts), or -1
    words: np.ndarray  # first row of the strip of words of each tile
    contexts: np.ndarray  # first row of the strip of contexts of each tile
    cells: dict[Cell, slice]  # tiles of each cell


class Tiles(NamedTuple):
    """All records, tile by tile."""

    starts: np.ndarray  # tile t has records starts[t] … starts[t + 1] - 1
    grid: Grid
    words: np.ndarray  # uint16: row of the word minus grid.words of the tile
    contexts: np.ndarray  # uint16: row of the context minus grid.contexts of the tile
    logs: np.ndarray  # float32: log of the count N
    weights: np.ndarray  # float32: weight w(N) in the loss


def tile_rows(row_bytes: int) -> int:
    """Return the number of rows of a strip, a power of 2, for rows of `row_bytes`."""
    return 1 << max(4, min(16, (CACHE_BYTES // row_bytes).bit_length() - 1))


def assign_blocks(records: np.ndarray, count: int, rows: int) -> Blocks:
    """Assign words to blocks with about equal numbers of records, and cut into strips.

    Words are assigned by descending record count, each to the block with the fewest
    so far.

    Args:
      records: Number of records of each word.
      count: Number of blocks.
      rows: Number of rows of a strip.
    """
    if not 1 <= count <= len(records):
        raise BadInput(
            f"expected 1 to {len(records)} blocks of words, got {count}; pass "
            f"--blocks=<at most {len(records)}>"
        )
    block = np.empty(len(records), np.int64)
    assign_words(np.argsort(-records, kind="stable"), records, np.zeros(count), block)
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
def assign_words(order, records, loads, block):
    """Assign words, in order, to the block with the fewest records so far.

    Args:
      order: Words in the order of their assignment.
      records: Number of records of each word.
      loads: Number of records of each block; updated.
      block: Receives the block of each word.
    """
    for word in order:
        least = np.argmin(loads)
        block[word] = least
        loads[least] += records[word]


def grid(blocks: Blocks, cells: Iterable[Cell], tables: int, seed: int) -> Grid:
    """Return the tiles of the cells, in order; tiles of a cell are in random order.

    Args:
      blocks: Rows of words.
      cells: Pairs of a block of words and a block of contexts.
      tables: 2 if contexts have separate rows, which follow those of words; else 1.
      seed: Random seed.
    """
    count = len(blocks.strips)
    tile = np.full((count, count), -1, np.int32)
    context_offset = len(blocks.row) if tables == 2 else 0  # rows of contexts are last
    words, contexts, slices = [], [], {}
    tiles = 0  # number of tiles so far
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
        tile[pairs[:, 0], pairs[:, 1]] = tiles + np.arange(len(pairs))
        slices[b, c] = slice(tiles, tiles + len(pairs))
        words.append(blocks.strips[pairs[:, 0]])
        contexts.append(blocks.strips[pairs[:, 1]] + context_offset)
        tiles += len(pairs)
    return Grid(tile, np.concatenate(words), np.concatenate(contexts), slices)


def histogram(words: np.ndarray, contexts: np.ndarray, count: int) -> np.ndarray:
    """Return the number of records of each word, as word and as context together.

    Args:
      words: Words of the records, numbered from 1.
      contexts: Contexts of the records, numbered from 1.
      count: Number of words of the vocabulary.
    """
    for numbers in words, contexts:
        if len(numbers) and not 1 <= numbers.min() <= numbers.max() <= count:
            raise BadInput(
                f"expected records of words 1 to {count}, got {numbers.min()} to "
                f"{numbers.max()}; pass the vocab.txt of these records"
            )
    counts = np.bincount(words, minlength=count + 1)
    return (counts + np.bincount(contexts, minlength=count + 1))[1:]


@njit(cache=True, nogil=True)
def count_records(records, strip, tile, skip_self, totals):
    """Add the number of records of each tile to `totals`.

    Args:
      records: Words and contexts, numbered from 1.
      strip: Blocks.strip.
      tile: Grid.tile.
      skip_self: Whether to omit records of a word with itself.
      totals: Number of records of each tile; updated.
    """
    words, contexts = records
    for k in range(len(words)):
        word, context = words[k] - 1, contexts[k] - 1
        if not (skip_self and word == context):
            totals[tile[strip[word], strip[context]]] += 1


@njit(cache=True, nogil=True)
def put_records(records, values, layout, skip_self, next_record, out):
    """Write records to their tiles; the array of logs receives the counts N.

    Args:
      records: Words and contexts, numbered from 1.
      values: Counts.
      layout: Blocks.strip, Blocks.offset and Grid.tile.
      skip_self: Whether to omit records of a word with itself.
      next_record: Index of the next record of each tile; updated.
      out: Tiles.words, Tiles.contexts and Tiles.logs.
    """
    words, contexts = records
    strip, offset, tile = layout
    out_words, out_contexts, out_logs = out
    for k in range(len(words)):
        word, context = words[k] - 1, contexts[k] - 1
        if not (skip_self and word == context):
            t = tile[strip[word], strip[context]]
            n = next_record[t]
            next_record[t] = n + 1
            out_words[n], out_contexts[n] = offset[word], offset[context]
            out_logs[n] = values[k]


mix = njit(inline="always")(splitmix.mix)


@njit(cache=True, nogil=True)
def shuffle(starts, tiles, seed, out):
    """Shuffle the records of each tile with a random stream per tile.

    Args:
      starts: Tiles.starts.
      tiles: Numbers of the tiles.
      seed: Random seed.
      out: Tiles.words, Tiles.contexts and Tiles.logs; shuffled in place.
    """
    words, contexts, logs = out
    for t in tiles:
        state = mix(np.uint64(seed) * GOLDEN) ^ mix(np.uint64(t))
        for n in range(starts[t + 1] - 1, starts[t], -1):
            state += GOLDEN
            m = starts[t] + np.int64(mix(state) % np.uint64(n + 1 - starts[t]))
            words[n], words[m] = words[m], words[n]
            contexts[n], contexts[m] = contexts[m], contexts[n]
            logs[n], logs[m] = logs[m], logs[n]
