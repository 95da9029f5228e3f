"""One worker, every tile in order: the reference of HOGWILD! and rotation.

The tiles and a state whose rows are in their order in, a Step after every epoch out.
"""

from collections.abc import Callable, Iterator

import numpy as np

from dml.data.tiles import Tiles
from dml.metrics.timer import Timer
from dml.strategies.glove.descend import descend
from dml.types import Embeddings, Step, nothing
from dml.update.rows import pack, unpack, width


def serial(
    state: Embeddings,
    tiles: Tiles,
    rate: float,
    timer: Timer,
    *,
    epoch: int = 0,
    work: Callable[[float], object] = nothing,
) -> Iterator[Step]:
    """Train for ever, an epoch a step; epoch says how many the state has behind it."""
    rows, dim = state.vectors_TxD.shape
    table = np.empty((rows, width(dim)), np.float32)
    pack(state, table)
    every = np.arange(len(tiles.grid.words))
    records = len(tiles.logs)
    while True:
        epoch += 1
        with timer("update"):
            losses = [
                descend(table, tiles, every[cell], rate)
                for cell in tiles.grid.cells.values()
            ]
            work(1)
        loss = np.array(losses).sum() / records
        yield Step(epoch, loss, lambda: unpack(table, dim), records, timer.lap(), 0)
