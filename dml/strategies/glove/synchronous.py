"""Synchronous data parallel on sparse rows: every rank has the table, and a shard.

      minibatch shard 0  shard 1  shard 2
                rows     rows     rows       equal ones of a shard are added up first
                 └── sparse: all-gather ──┘  the rows that anyone touched, p-1 times; or
                 └── dense: all-reduce ───┘  all T rows, by any algorithm
                table    table    table      AdaGrad on the same sums: equal bits

By the rows' numbers all ranks choose the cheaper one alike. Words a minibatch: (p-1)n
of n gathered words and 2p(p-1) of lengths; or those of the all-reduce over T (D + 1).
"""

from collections.abc import Callable, Iterator

import numpy as np
from numba import njit

from dml.data.shards import bounds
from dml.data.tiles import Tiles
from dml.metrics.timer import Timer
from dml.strategies.glove.minibatch import Sums, missed, part, products, summed
from dml.types import AllReduce, CountedComm, Embeddings, Rows, Step
from dml.update.rows import LANES, adagrad, pack, padded, unpack, width
from dml.wire.buffers import allocate
from dml.wire.messages import tree_allreduce
from dml.wire.messages.gather_parts import gather_parts, lengths


def synchronous(
    state: Embeddings,
    tiles: Tiles,
    rate: float,
    timer: Timer,
    *,
    comm: CountedComm,
    allreduce: AllReduce,
    dense: Callable[[np.ndarray, int], bool],
    batch: int,
    epoch: int = 0,
) -> Iterator[Step]:
    """Train as minibatch does; dense(buffer, nbytes) says when not to gather nbytes."""
    rows, dim = state.vectors_TxD.shape
    table = np.empty((rows, width(dim)), np.float32)
    pack(state, table)
    sums, count = Sums(rows, dim, batch), len(tiles.logs)
    wire = Wire(comm, allreduce, dense, (rows, dim))
    while True:
        epoch, losses, sent = epoch + 1, np.zeros(1), comm.bytes_sent
        for start in range(0, count, batch):
            with timer("gradient"):
                first, stop = bounds(min(batch, count - start), comm.rank, comm.size)
                records = part(tiles, start + first, start + stop)
                grads, lost = missed(products(table, records), records)
                mine = summed(table, records, grads, sums)
                comm.platform.work(1)
            with timer("wire"):
                found = wire.add_up(mine, sums)
            with timer("update"):
                adagrad(table, found, rate)
            losses += lost
        with timer("wire"):
            tree_allreduce(comm, losses)
        words = (comm.bytes_sent - sent) // table.itemsize
        yield Step(
            epoch,
            float(losses[0]) / count,
            lambda: unpack(table, dim) if comm.rank == 0 else None,
            count,
            timer.lap(),
            words,
        )


class Wire:
    """Adds up rows over ranks, sparse or dense; owns the dense buffer."""

    def __init__(
        self,
        comm: CountedComm,
        allreduce: AllReduce,
        dense: Callable[[np.ndarray, int], bool],
        shape: tuple[int, int],
    ):
        self.comm, self.allreduce, self.dense = comm, allreduce, dense
        self.rows, self.dim = shape
        self.buffer = allocate(comm, self.rows * (self.dim + 1))

    def add_up(self, mine: Rows, sums: Sums) -> Rows:
        """Return the sums of all ranks' rows, equal on all ranks."""
        record = self.dim + 2  # the row's number, its vector, its bias
        each = lengths(self.comm, len(mine.index) * record)
        if self.dense(self.buffer, int(each.sum()) * self.buffer.itemsize):
            return self.reduce(mine)
        parcel = np.empty((len(mine.index), record), np.float32)
        parcel[:, 0] = mine.index.view(np.float32)
        parcel[:, 1:] = self.narrow(mine.values)
        parcels = gather_parts(self.comm, parcel.reshape(-1), each).reshape(-1, record)
        index, values = parcels[:, 0].view(np.int32), parcels[:, 1:]
        found = merge(index, values, self.dim, sums.slot, sums.index, sums.values)
        return Rows(sums.index[:found], sums.values[:found])

    def reduce(self, mine: Rows) -> Rows:
        buffer_TxW = self.buffer.reshape(self.rows, -1)
        buffer_TxW[:] = 0
        buffer_TxW[mine.index] = self.narrow(mine.values)
        self.allreduce(self.comm, self.buffer, op=np.add)
        index = np.flatnonzero(buffer_TxW.any(axis=1)).astype(np.int32)
        values = np.zeros((len(index), padded(self.dim) + 1), np.float32)
        values[:, : self.dim] = buffer_TxW[index, :-1]
        values[:, -1] = buffer_TxW[index, -1]
        return Rows(index, values)

    def narrow(self, values: np.ndarray) -> np.ndarray:
        """Leave the padding out."""
        pad = padded(self.dim)
        return np.concatenate([values[:, : self.dim], values[:, pad : pad + 1]], axis=1)


@njit(cache=True, nogil=True)
def merge(index, values, dim, slot, found, sums):
    """Add up the values of equal rows, in their order; return how many there are."""
    pad, used = sums.shape[1] - LANES, 0
    for n in range(len(index)):
        row = index[n]
        if slot[row] < 0:
            slot[row], found[used] = used, row
            sums[used] = 0
            used += 1
        to = sums[slot[row]]
        for d in range(dim):
            to[d] += values[n, d]
        to[pad] += values[n, dim]
    for n in range(used):
        slot[found[n]] = -1
    return used
