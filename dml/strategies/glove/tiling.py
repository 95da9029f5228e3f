"""Divide the records of GloVe into tiles, in the shared memory of each host.

    file     |  rank 0's part  |  rank 1's part  |     each rank counts its records by
    tile 7   | … | from part 0 | from part 1 | … |     tile and writes them in the
                                                       order of the file
Then each rank shuffles some of the tiles. The tiles are equal for any number of ranks.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from dml.data.shards import bounds
from dml.data.text import tiles
from dml.data.text.tiles import Blocks, Cell, Tiles
from dml.models.networks.glove import weight
from dml.types import BadInput, Comm, Embeddings
from dml.wire.collectives import all_gather
from dml.wire.memory.shared import shared_zeros

RECORD_BYTES = 12  # two offsets, logarithm, weight
STEP = 1 << 16  # records that are copied or weighed at once
Pair = tuple[np.ndarray, np.ndarray]  # words, contexts


class Order(NamedTuple):
    """How records are ordered and weighted.

    Attributes:
      cells: Cells in the order of an epoch.
      blocks: Number of blocks of words.
      tables: 1 if words and contexts share a table, 2 if not.
      rows: Number of rows of a tile, on each side.
      seed: Random seed of the order.
      x_max: Count from which records have weight 1.
      alpha: Exponent of the weight.
    """

    cells: Iterable[Cell]
    blocks: int
    tables: int
    rows: int
    seed: int
    x_max: float
    alpha: float


def tiled(
    comm: Comm, records: np.ndarray, words: int, order: Order
) -> tuple[Tiles, Blocks]:
    """Divide all records into tiles, once per host; collective.

    Args:
      comm: Ranks.
      records: All records, in any order.
      words: Number of words.
      order: How records are ordered and weighted.

    Returns:
      The tiles, in shared memory of the host, and the words of each block.
    """
    hosts = comm.platform.hosts()
    host = comm.Split(hosts[comm.rank], comm.rank) if max(hosts) else comm
    start, stop = bounds(len(records), host.rank, host.size)
    part = records[start:stop]
    occurrences = np.zeros(words, np.int64)
    for pair, _ in pieces(part):
        occurrences += tiles.histogram(*pair, words)
    occurrences = gathered(host, occurrences).sum(axis=0)
    blocks = tiles.assign_blocks(occurrences, order.blocks, order.rows)
    grid = tiles.grid(blocks, order.cells, order.tables, order.seed)
    one_table = order.tables == 1  # records of a word with itself are left out
    counts = np.zeros(len(grid.words), np.int64)
    for pair, _ in pieces(part):
        tiles.count_records(pair, blocks.strip, grid.tile, one_table, counts)
    each = gathered(host, counts)
    starts = np.concatenate([[0], np.cumsum(each.sum(axis=0))])
    total = int(starts[-1])
    if not total:
        raise BadInput(
            "expected records of two different words, got none among "
            f"{len(records)}; pass a longer corpus"
        )
    memory = shared_zeros(host, RECORD_BYTES * total, np.uint8)
    logs, weights = memory[: 8 * total].view(np.float32).reshape(2, total)
    offsets = memory[8 * total :].view(np.uint16).reshape(2, total)
    all_tiles = Tiles(starts, grid, offsets[0], offsets[1], logs, weights)
    at = starts[:-1] + each[: host.rank].sum(axis=0)
    where = blocks.strip, blocks.offset, grid.tile
    out = all_tiles.words, all_tiles.contexts, all_tiles.logs
    for pair, values in pieces(part):
        tiles.put_records(pair, values, where, one_table, at, out)
    host.Barrier()
    tiles.shuffle(starts, np.arange(host.rank, len(counts), host.size), order.seed, out)
    host.Barrier()
    weigh(all_tiles, bounds(total, host.rank, host.size), order)
    host.Barrier()
    return all_tiles, blocks


def pieces(records: np.ndarray) -> Iterator[tuple[Pair, np.ndarray]]:
    """Yield words, contexts and counts of a few records at a time; they are copies."""
    for start in range(0, len(records), STEP):
        part = records[start : start + STEP]
        words, contexts = (np.ascontiguousarray(part[x]) for x in ("word", "context"))
        yield (words, contexts), np.ascontiguousarray(part["value"])


def gathered(comm: Comm, counts: np.ndarray) -> np.ndarray:
    """Return every rank's counts, one row per rank."""
    each = np.zeros((comm.size, len(counts)), np.int64)
    each[comm.rank] = counts
    all_gather(comm, each)
    return each


def weigh(records: Tiles, part: tuple[int, int], order: Order) -> None:
    """Replace the counts of a part by logarithms, and set their weights."""
    for start in range(*part, STEP):
        at = slice(start, min(start + STEP, part[1]))
        counts = records.logs[at]
        if not ((counts > 0) & (counts < np.inf)).all():  # False for NaN
            raise BadInput(
                f"expected finite counts above 0, got {counts.min()} to {counts.max()} "
                f"among records {start} to {at.stop}; count the corpus again"
            )
        records.weights[at] = weight(counts, order.x_max, order.alpha)
        np.log(counts, out=counts)


def by_row(state: Embeddings, blocks: Blocks) -> Embeddings:
    """Return the state with rows in the order of the tiles."""
    return _moved(state, np.argsort(blocks.row))


def by_word(state: Embeddings, blocks: Blocks) -> Embeddings:
    """Return the state with rows in the order of words."""
    return _moved(state, blocks.row)


def _moved(state: Embeddings, to: np.ndarray) -> Embeddings:
    tables = len(state.biases_T) // len(to)
    rows = np.concatenate([to + table * len(to) for table in range(tables)])
    return Embeddings(*(array[rows] for array in state))
