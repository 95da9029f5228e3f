"""HOGWILD! (Niu 2011): all ranks of a host on one table, without a lock.

    tiles   0 1 2 3 4 5 6 7 8 …       Tiles are dealt to ranks by equal records. A rank
    rank    0 2 1 1 0 2 2 0 1 …       reads rows that others write, and writes over what
                                      they wrote.

No run repeats another; one rank alone is serial, bit for bit. Words a step: one loss
a cell.
"""

from collections.abc import Iterator

import numpy as np

from dml.data.tiles import Tiles, assign
from dml.metrics.timer import Timer
from dml.strategies.glove.descend import descend
from dml.types import BadInput, CountedComm, Embeddings, Step
from dml.update.rows import pack, unpack, width
from dml.wire.memory.shared import share
from dml.wire.messages import tree_allreduce


def hogwild(
    state: Embeddings,
    tiles: Tiles,
    rate: float,
    timer: Timer,
    *,
    comm: CountedComm,
    epoch: int = 0,
) -> Iterator[Step]:
    """Train as serial does, every rank on the tiles that are its own."""
    if max(comm.platform.hosts()):
        raise BadInput(
            "expected all ranks on one host with --strategy=hogwild, got ranks on "
            f"{max(comm.platform.hosts()) + 1}; pass --strategy=rotation"
        )
    table = shared_table(comm, state)
    dim = state.vectors_TxD.shape[1]
    mine = dealt(tiles, comm.rank, comm.size)
    while True:
        epoch, sent = epoch + 1, comm.bytes_sent
        with timer("update"):
            losses = [descend(table, tiles, these, rate) for these in mine]
            comm.platform.work(1)
        with timer("wait"):
            total = np.array(losses)
            tree_allreduce(comm, total)
        words = (comm.bytes_sent - sent) // total.itemsize
        yield Step(
            epoch,
            total.sum() / len(tiles.logs),
            lambda: collect(comm, table, dim),
            len(tiles.logs),
            timer.lap(),
            words,
        )


def dealt(tiles: Tiles, rank: int, size: int) -> list[np.ndarray]:
    """Return the tiles of each cell that are a rank's: all ranks have equal records.

    A cell may have fewer tiles than there are ranks, so they are dealt all together.
    """
    records = np.diff(tiles.starts)
    owner = np.empty(len(records), np.int64)
    assign(np.argsort(-records, kind="stable"), records, np.zeros(size), owner)
    every = np.arange(len(records))
    return [every[cell][owner[cell] == rank] for cell in tiles.grid.cells.values()]


def shared_table(comm: CountedComm, state: Embeddings) -> np.ndarray:
    """Put the state into a table that all ranks of a host see."""
    rows, dim = state.vectors_TxD.shape
    table = share(comm, rows * width(dim)).reshape(rows, width(dim))
    if comm.rank == 0:
        pack(state, table)
    comm.Barrier()
    return table


def collect(comm: CountedComm, table: np.ndarray, dim: int) -> Embeddings | None:
    """Return the state on rank 0, while nobody writes."""
    state = unpack(table, dim) if comm.rank == 0 else None
    comm.Barrier()
    return state
