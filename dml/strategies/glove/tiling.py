"""BATCH for GloVe on ranks: counts in, tiles that a host shares out.

    file     |  rank 0's part  |  rank 1's part  |     each counts its records by tile
    tile 7   | … | from part 0 | from part 1 | … |     and puts them after those of the
                                                       parts before: the file's order

Then each rank shuffles some of the tiles. So the result does not depend on the ranks.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from dml.data.shards import bounds
from dml.data.text import tiles
from dml.data.text.tiles import Blocks, Cell, Tiles
from dml.models.glove import weight
from dml.types import BadInput, Comm, Embeddings
from dml.wire.collectives import all_gather
from dml.wire.memory.shared import share

RECORD_BYTES = 12  # two offsets, a logarithm, a weight
STEP = 1 << 16  # records that are copied or turned into logarithms at once
Pair = tuple[np.ndarray, np.ndarray]  # words, contexts


class Order(NamedTuple):
    """How records are ordered and weighed."""

    cells: Iterable[Cell]  # in the order in which they are taken
    blocks: int
    tables: int
    rows: int  # of a tile, on each side
    seed: int
    x_max: float
    alpha: float


def tiled(
    comm: Comm, records: np.ndarray, words: int, order: Order
) -> tuple[Tiles, Blocks]:
    """Tile all records, once a host; collective. Records may come in any order."""
    hosts = comm.platform.hosts()
    host = comm.Split(hosts[comm.rank], comm.rank) if max(hosts) else comm
    start, stop = bounds(len(records), host.rank, host.size)
    mine = records[start:stop]
    meetings = np.zeros(words, np.int64)
    for pair, _ in pieces(mine):
        meetings += tiles.histogram(*pair, words)
    meetings = gathered(host, meetings).sum(axis=0)
    blocks = tiles.deal(meetings, order.blocks, order.rows)
    grid = tiles.grid(blocks, order.cells, order.tables, order.seed)
    alone = order.tables == 1  # a word does not meet itself
    counts = np.zeros(len(grid.words), np.int64)
    for pair, _ in pieces(mine):
        tiles.sizes(pair, blocks.strip, grid.place, alone, counts)
    each = gathered(host, counts)
    starts = np.concatenate([[0], np.cumsum(each.sum(axis=0))])
    total = int(starts[-1])
    if not total:
        raise BadInput(
            "expected records of words that meet another, got none among "
            f"{len(records)}; pass a longer corpus"
        )
    memory = share(host, RECORD_BYTES * total, np.uint8)
    logs, weights = memory[: 8 * total].view(np.float32).reshape(2, total)
    offsets = memory[8 * total :].view(np.uint16).reshape(2, total)
    found = Tiles(starts, grid, offsets[0], offsets[1], logs, weights)
    at = starts[:-1] + each[: host.rank].sum(axis=0)
    where = blocks.strip, blocks.offset, grid.place
    out = found.words, found.contexts, found.logs
    for pair, values in pieces(mine):
        tiles.put(pair, values, where, alone, at, out)
    host.Barrier()
    tiles.shuffle(starts, np.arange(host.rank, len(counts), host.size), order.seed, out)
    host.Barrier()
    weigh(found, bounds(total, host.rank, host.size), order)
    host.Barrier()
    return found, blocks


def pieces(records: np.ndarray) -> Iterator[tuple[Pair, np.ndarray]]:
    """Yield words and contexts, and counts, of few records at once: they are copies."""
    for start in range(0, len(records), STEP):
        part = records[start : start + STEP]
        words, contexts = (np.ascontiguousarray(part[x]) for x in ("word", "context"))
        yield (words, contexts), np.ascontiguousarray(part["value"])


def gathered(comm: Comm, counts: np.ndarray) -> np.ndarray:
    """Return every rank's counts, one row a rank."""
    each = np.zeros((comm.size, len(counts)), np.int64)
    each[comm.rank] = counts
    all_gather(comm, each)
    return each


def weigh(found: Tiles, part: tuple[int, int], order: Order) -> None:
    """Turn the counts of a part into logarithms and weights, in place."""
    for start in range(*part, STEP):
        here = slice(start, min(start + STEP, part[1]))
        some = found.logs[here]
        if not ((some > 0) & (some < np.inf)).all():  # NaN is neither
            raise BadInput(
                f"expected finite counts above 0, got {some.min()} to {some.max()} "
                f"among records {start} to {here.stop}; count anew"
            )
        found.weights[here] = weight(found.logs[here], order.x_max, order.alpha)
        np.log(found.logs[here], out=found.logs[here])


def by_row(state: Embeddings, blocks: Blocks) -> Embeddings:
    """Order a state's rows as the tiles do."""
    return _moved(state, np.argsort(blocks.row))


def by_word(state: Embeddings, blocks: Blocks) -> Embeddings:
    """Order a state's rows by words again."""
    return _moved(state, blocks.row)


def _moved(state: Embeddings, to: np.ndarray) -> Embeddings:
    tables = len(state.biases_T) // len(to)
    every = np.concatenate([to + table * len(to) for table in range(tables)])
    return Embeddings(*(numbers[every] for numbers in state))
