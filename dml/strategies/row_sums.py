"""Sums of sparse gradients over ranks, and synchronous training with them.

      minibatch shard 0  shard 1  shard 2
                rows     rows     rows       equal rows of a shard are summed first
                 └── sparse: all-gather ──┘  rows of all shards, p-1 rounds; or
                 └── dense: all-reduce ───┘  all T rows, by any algorithm
                table    table    table      the same update of equal sums

All ranks choose the cheaper exchange from the numbers of rows. Elements sent per update
by all ranks: (p-1)n for n gathered elements and 2p(p-1) for the lengths of the parts,
or those of an all-reduce of the table.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numba import njit

from dml.data.feed import feed
from dml.data.shards import microbatches
from dml.metrics.timer import Timer
from dml.strategies.parameters import Table, Update, mean_loss
from dml.types import CountedComm, Problem, Reducer, Rows, Step
from dml.wire.collectives import tree_allreduce
from dml.wire.collectives.all_gather_parts import all_gather_parts, gather_lengths
from dml.wire.comm.buffers import allocate, layout
from dml.wire.reducers.rows import indices, sum_rows

ALL = (slice(None),)


def train_table(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    reducer: Reducer,
    dense: Callable[[np.ndarray, int], bool] = lambda buffer, nbytes: False,
    columns: Sequence[slice] = ALL,
    accumulate: int = 1,
    every: int | None = None,
    prefetch: int = 0,
    state: Any = None,
) -> Iterator[Step]:
    """Train a table on all ranks in lockstep; see `synchronous`.

    Args:
      problem: Problem to train, with gradients of rows.
      batches: Indices of each global minibatch.
      update: Rule of rows.
      comm: Ranks.
      timer: Measures the phases.
      reducer: Computes the mean of dense gradients.
      dense: (buffer, nbytes) -> whether to reduce the full table instead of gathering
        nbytes.
      columns: Columns of the gradient's rows that are sent.
      accumulate: Number of microbatches of a rank's shard.
      every: Number of updates in a Step; None: 1, and Steps have no epoch.
      prefetch: Number of minibatches prepared in the background.
      state: State of the rule in an earlier Step; None starts anew.
    """
    parameters = Table(problem, update, state)
    sums = RowSums(comm, reducer, dense, parameters.shard.values, columns)
    split = partial(microbatches, rank=comm.rank, size=comm.size, parts=accumulate)
    minibatches = feed(problem.take, batches, split, parameters.put, prefetch)
    losses: list[tuple[float, int]] = []
    sent = comm.bytes_sent
    for number, (count, parts) in enumerate(timer.waits("input", minibatches), 1):
        with timer("gradient"):
            comm.platform.work(1)
            loss, grads = parameters.mean_gradient(parts, count)
        with timer("wire"):
            total = sums.add_up(grads)
        with timer("update"):
            parameters.apply(total)
        losses.append((loss, count))
        if number % (every or 1):
            continue
        with timer("wire"):
            step_loss = np.array([mean_loss(losses)])
            tree_allreduce(comm, step_loss)
        yield Step(
            number=number,
            loss=float(step_loss[0]),
            params=parameters.collect,
            examples=sum(examples for _, examples in losses),
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // sums.buffer.itemsize,
            state=parameters.state,
            epoch=every and number // every,
            replicas=True,
        )
        losses, sent = [], comm.bytes_sent


class RowSums:
    """Sums rows over ranks, by a sparse or a dense exchange; owns the dense buffer.

    Args:
      comm: Ranks.
      reducer: Sums the dense buffer. One that is not exact has no sparse sums.
      dense: (buffer, bytes to gather) -> whether to reduce the buffer instead.
      table: TxR array, with the shape of a gradient of all rows.
      columns: Columns of gradients that are not always zero.
    """

    def __init__(
        self,
        comm: CountedComm,
        reducer: Reducer,
        dense: Callable[[np.ndarray, int], bool],
        table: np.ndarray,
        columns: Sequence[slice] = ALL,
    ):
        exact = reducer.combine is sum_rows
        self.comm, self.reducer = comm, reducer
        self.dense = dense if exact else lambda buffer, nbytes: True
        self.rows, self.columns = len(table), columns
        self.wide = columns[-1].stop or table.shape[1]
        self.width = sum(len(range(self.wide)[part]) for part in columns)
        self.buffer = allocate(comm, self.rows * self.width)
        self.memory = reducer.init(layout(self.buffer))
        self.slot = np.full(self.rows, -1, np.int32)  # row -> index of its sum, or -1

    def add_up(self, grads: Rows | None) -> Rows:
        """Return the sums of all ranks' rows, equal on all ranks.

        Args:
          grads: Gradient of this rank; None: it has no rows.
        """
        if grads is None:
            touched, narrow = np.empty(0, np.int32), np.empty((0, self.width))
        else:
            touched = indices(grads.index).astype(np.int32, copy=False)
            narrow = np.concatenate([grads.values[:, s] for s in self.columns], axis=1)
        record = self.width + 1  # words of a record: row number, gradient
        each = gather_lengths(self.comm, len(touched) * record)
        if self.dense(self.buffer, int(each.sum()) * self.buffer.itemsize):
            return self.sum_dense(touched, narrow)
        records = np.empty((len(touched), record), np.float32)
        records[:, 0] = touched.view(np.float32)
        records[:, 1:] = narrow
        gathered = all_gather_parts(self.comm, records.reshape(-1), each)
        gathered = gathered.reshape(-1, record)
        index, values = gathered[:, 0].view(np.int32), gathered[:, 1:]
        rows = np.empty(min(self.rows, len(index)), np.int32)
        sums = np.empty((len(rows), self.width), np.float32)
        used = merge(index, values, self.slot, rows, sums)
        return self.with_all_columns(rows[:used], sums[:used])

    def sum_dense(self, index: np.ndarray, narrow: np.ndarray) -> Rows:
        """Return the sums by an all-reduce over all rows."""
        buffer_TxW = self.buffer.reshape(self.rows, -1)
        buffer_TxW[:] = 0
        buffer_TxW[index] = narrow
        self.memory = self.reducer.reduce(self.comm, self.buffer, self.memory)
        index = np.flatnonzero(buffer_TxW.any(axis=1)).astype(np.int32)
        return self.with_all_columns(index, buffer_TxW[index])

    def with_all_columns(self, index: np.ndarray, narrow: np.ndarray) -> Rows:
        """Return rows with all columns; columns that are not sent are zero."""
        if self.columns == ALL:
            return Rows(index, narrow)
        values, first = np.zeros((len(index), self.wide), np.float32), 0
        for part in self.columns:
            last = first + len(range(self.wide)[part])
            values[:, part] = narrow[:, first:last]
            first = last
        return Rows(index, values)


@njit(cache=True, nogil=True)
def merge(index, values, slot, rows, sums):
    """Sum the values of equal rows in their order; return the number of rows."""
    used = 0
    for n in range(len(index)):
        row = index[n]
        if slot[row] < 0:
            slot[row], rows[used] = used, row
            sums[used] = 0
            used += 1
        to = sums[slot[row]]
        for d in range(values.shape[1]):
            to[d] += values[n, d]
    for n in range(used):
        slot[rows[n]] = -1
    return used
