"""Rotation (Gemulla 2011): ranks work on blocks that share no row, then pass them on.

      words  contexts           Of each turn's blocks, those that another rank had come
    r0 │ 0     0 ──► r1         by a message: the block itself or, where all ranks see
    r0 │ 1     1                one table, an empty one, which says that it is free.
    r1 │ 2     2 ──► r0         A rank sends on its first block's contexts and works
    r1 │ 3     3                on; the one who waits for them needs them last.

Every row changes in serial's order, so the bits are serial's, on any number of ranks
and by either medium. By messages each of the B context blocks of n/B numbers moves
between ranks p times an epoch, of two tables: pn words; and the losses of all cells.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from dml.data.tiles import Blocks, Tiles
from dml.metrics.timer import Timer
from dml.strategies.glove.descend import descend
from dml.strategies.glove.hogwild import shared_table
from dml.types import BadInput, CountedComm, Embeddings, Step
from dml.update.rows import pack, unpack, width
from dml.wire import rotation as schedule
from dml.wire.messages import tree_allreduce
from dml.wire.messages.parcels import Parcels


def rotation(
    state: Embeddings,
    tiles: Tiles,
    rate: float,
    timer: Timer,
    *,
    comm: CountedComm,
    blocks: Blocks,
    travel: bool,
    epoch: int = 0,
) -> Iterator[Step]:
    """Train as serial does; blocks travel by messages, or stay in shared memory."""
    count, dim = len(blocks.edges) - 1, state.vectors_TxD.shape[1]
    if comm.size > count:
        raise BadInput(
            f"expected at most {count} ranks for {count} blocks, got {comm.size}; "
            f"pass --blocks=<at least {comm.size}>"
        )
    tables = len(state.biases_T) // len(blocks.row)
    homes = schedule.homes(count, tables, comm.size)
    ranks, back = schedule.turns(count, tables, comm.size)
    if travel:
        table = np.empty((len(state.biases_T), width(dim)), np.float32)
        pack(state, table)
    else:
        table = shared_table(comm, state)
    parcels = Parcels(comm, parts(table, blocks) if travel else {})
    every = np.arange(len(tiles.grid.words))
    where = {cell: n for n, cell in enumerate(tiles.grid.cells)}
    while True:
        epoch, sent = epoch + 1, comm.bytes_sent
        losses = np.zeros(len(where))
        for turn in ranks[comm.rank]:
            with timer("wait"):
                parcels.take(turn.take)
            with timer("update"):
                for cell in turn.cells:
                    losses[where[cell]] = descend(
                        table, tiles, every[tiles.grid.cells[cell]], rate
                    )
                comm.platform.work(load(tiles, turn.cells) * comm.size)
            with timer("wire"):
                parcels.give(turn.give)
        with timer("wait"):
            parcels.take(back[comm.rank])
            tree_allreduce(comm, losses)  # of zeros and one number: any order is exact
        words = (comm.bytes_sent - sent) // table.itemsize
        yield Step(
            epoch,
            losses.sum() / len(tiles.logs),
            lambda: collect(parcels, homes, table, dim),
            len(tiles.logs),
            timer.lap(),
            words,
        )


def load(tiles: Tiles, cells: Sequence[schedule.Cell]) -> float:
    """Return the share of all records that some cells have."""
    tiles_of = [tiles.grid.cells[cell] for cell in cells]
    records = sum(tiles.starts[at.stop] - tiles.starts[at.start] for at in tiles_of)
    return float(records / len(tiles.logs))


def parts(table: np.ndarray, blocks: Blocks) -> dict[int, np.ndarray]:
    """Return the rows of each block: words' first, then those of contexts."""
    count, tables = len(blocks.edges) - 1, len(table) // len(blocks.row)
    return {
        t * count + b: part[blocks.edges[b] : blocks.edges[b + 1]].reshape(-1)
        for t, part in enumerate(np.split(table, tables))
        for b in range(count)
    }


def collect(
    parcels: Parcels, homes: list[int], table: np.ndarray, dim: int
) -> Embeddings | None:
    """Return the state on rank 0, once all blocks are there, while nobody writes."""
    comm, state = parcels.comm, None
    parcels.settle()
    if comm.rank == 0:
        parcels.take((block, home) for block, home in enumerate(homes) if home)
        state = unpack(table, dim)
    else:
        mine = [block for block, home in enumerate(homes) if home == comm.rank]
        parcels.give((block, 0) for block in mine)
    parcels.settle()
    comm.Barrier()
    return state
