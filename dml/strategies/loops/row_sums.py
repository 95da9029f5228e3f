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
from dml.metrics.timer import Timer
from dml.strategies.loops.parameters import (
    TableParameters,
    Update,
    check_shards,
    mean_loss,
    restore_memory,
    split_shards,
)
from dml.strategies.loops.vectors import ALL, Columns
from dml.types import (
    BadInput,
    CountedComm,
    Problem,
    Reducer,
    Rows,
    Step,
    identity,
    no_op,
)
from dml.types.ranges import Count, Every, Size, checked
from dml.wire.collectives import tree_allreduce
from dml.wire.collectives.all_gather_parts import all_gather_parts, gather_lengths
from dml.wire.collectives.check import check_arguments
from dml.wire.comm.buffers import allocate, layout
from dml.wire.comm.metered import uncounted
from dml.wire.reducers.rows import sum_rows


@partial(checked, name="synchronous")
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
    accumulate: Count = 1,
    shards: Size = 0,
    every: Every | None = None,
    prefetch: Size = 0,
    commit: Callable[[], object] = no_op,
    state: Any = None,
    memory: Any = None,
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
      accumulate: Number of microbatches of a shard.
      shards: Number of logical shards, each a term of the sums; 0: one per rank.
      every: Number of updates in a Step; None: 1, and Steps have no epoch.
      prefetch: Number of minibatches prepared in the background.
      commit: Called before every update; see `synchronous`.
      state: State of the rule in an earlier Step; None starts anew.
      memory: Leaves of `memory` in an earlier Step, of each rank of that run.
    """
    parameters = TableParameters(problem, update, state)
    possible = reducer.combine is sum_rows or reducer.reduce_terms is not None
    count_shards = check_shards(comm, shards, possible)
    sums = RowSums(comm, reducer, dense, parameters.shard.values, columns, shards)
    sums.memory = restore_memory(comm, sums.memory, memory)
    split = split_shards(comm, count_shards, accumulate)
    minibatches = feed(problem.take, batches, split, parameters.put, prefetch)
    losses: list[list[tuple[float, int]]] = []  # of each term, by update
    sent = comm.bytes_sent
    for number, (count, parts) in enumerate(timer.waits("input", minibatches), 1):
        with timer("gradient"):
            comm.platform.work(1)
            shares = [
                parts[n : n + accumulate] for n in range(0, len(parts), accumulate)
            ]
            terms = [parameters.mean_gradient(share, count) for share in shares]
        with timer("wire"):
            total = sums.add_up([grads for _, grads in terms])
        losses.append([(loss, count) for loss, _ in terms])
        ends = number % (every or 1) == 0
        with timer("wire"):
            if ends:
                own = np.array(
                    [mean_loss(of_term) for of_term in zip(*losses, strict=True)]
                )
                step_loss = add_losses(comm, own, bool(shards))
            commit()
        with timer("update"):
            parameters.apply(total)
        if not ends:
            continue
        yield Step(
            number=number,
            loss=step_loss,
            params=parameters.collect,
            examples=sum(of_terms[0][1] for of_terms in losses),
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // sums.buffer.itemsize,
            state=parameters.state,
            memory=partial(identity, sums.memory),
            epoch=every and number // every,
            replicas=True,
        )
        losses, sent = [], comm.bytes_sent


def add_losses(comm: CountedComm, losses: np.ndarray, in_order: bool) -> float:
    """Return the sum of the losses of all ranks' terms.

    Args:
      comm: Ranks.
      losses: Losses of this rank's terms.
      in_order: Whether to add them in the order of the terms, not of an all-reduce.
    """
    if in_order:
        lengths = gather_lengths(comm, len(losses))
        return sum(all_gather_parts(comm, losses, lengths).tolist())
    tree_allreduce(comm, losses)
    return float(losses[0])


class RowSums:
    """Sums rows over ranks, by a sparse or a dense exchange; owns the dense buffer.

    Args:
      comm: Ranks.
      reducer: Sums the dense buffer. One that is not exact has no sparse sums.
      dense: (buffer, bytes to gather) -> whether to reduce the buffer instead.
      table: TxR array, with the shape of a gradient of all rows.
      columns: Columns of gradients that are not always zero.
      shards: Number of terms of all ranks; 0: one per rank. Exact sums add them in
        their order, by the sparse exchange.
    """

    def __init__(
        self,
        comm: CountedComm,
        reducer: Reducer,
        dense: Callable[[np.ndarray, int], bool],
        table: np.ndarray,
        columns: Sequence[slice] = ALL,
        shards: int = 0,
    ):
        exact = reducer.combine is sum_rows
        self.comm, self.reducer, self.several = comm, reducer, shards > comm.size
        self.dense = dense
        if shards or not exact:
            self.dense = lambda buffer, nbytes: not exact
        self.rows, self.columns = len(table), Columns(table, columns)
        self.width = self.columns.width
        self.buffer = allocate(comm, self.rows * self.width)
        # before the first exchange, as records do not contain these numbers
        purpose = f"{self.rows} rows of {self.width} sent columns"
        check_arguments(uncounted(comm), self.buffer, purpose)
        self.memory = reducer.init(layout(self.buffer))
        self.slot = np.full(self.rows, -1, np.int32)  # row -> index of its sum, or -1

    def add_up(self, terms: Sequence[Rows | None]) -> Rows:
        """Return the sums of all ranks' rows, equal on all ranks.

        Args:
          terms: Gradients of this rank; None: no rows.
        """
        sent = [self.columns.select(term) for term in terms]
        record = self.width + 1  # words of a record: row number, gradient
        count = sum(len(index) for index, _ in sent)
        each = gather_lengths(self.comm, count * record)
        if (each % record).any():
            self.refuse(int((each % record).argmax()), f"records of {record} words")
        if self.dense(self.buffer, int(each.sum()) * self.buffer.itemsize):
            return self.sum_dense(sent)
        touched, narrow = sent[0]
        if len(sent) > 1:
            touched = np.concatenate([index for index, _ in sent])
            narrow = np.concatenate([values for _, values in sent])
        records = np.empty((len(touched), record), np.float32)
        records[:, 0] = touched.view(np.float32)
        records[:, 1:] = narrow
        gathered = all_gather_parts(self.comm, records.reshape(-1), each)
        gathered = gathered.reshape(-1, record)
        index, values = gathered[:, 0].view(np.int32), gathered[:, 1:]
        rows = np.empty(min(self.rows, len(index)), np.int32)
        sums = np.empty((len(rows), self.width), np.float32)
        used = merge(index, values, self.slot, rows, sums)
        if used < 0:
            rank = int(np.searchsorted(np.cumsum(each // record), ~used, "right"))
            what = f"rows of 0 to {self.rows - 1}"
            self.refuse(rank, what, f"row {index[~used]}")
        return self.columns.restore(rows[:used], sums[:used])

    def refuse(self, rank: int, expected: str, got: str = "another length") -> None:
        """Raise BadInput for the rows that a rank has sent."""
        raise BadInput(
            f"rank {self.comm.rank}: expected {expected} from rank {rank}, got {got}; "
            "start all ranks with the same problem, data and --strategy"
        )

    def sum_dense(self, terms: Sequence[tuple[np.ndarray, np.ndarray]]) -> Rows:
        """Return the sums by an all-reduce over all rows."""
        buffers = [self.buffer, *(np.empty_like(self.buffer) for _ in terms[1:])]
        for buffer, (index, narrow) in zip(buffers, terms, strict=True):
            buffer[:] = 0
            buffer.reshape(self.rows, -1)[index] = narrow
        if self.several:  # on all ranks, also on those with one term
            assert self.reducer.reduce_terms
            self.memory = self.reducer.reduce_terms(self.comm, buffers, self.memory)
        else:
            self.memory = self.reducer.reduce(self.comm, self.buffer, self.memory)
        return self.columns.rows_that_changed(self.buffer.reshape(self.rows, -1))


@njit(cache=True, nogil=True)
def merge(index, values, slot, rows, sums):
    """Sum the values of equal rows in their order; return the number of rows.

    Return -1 - n if the n-th row number is not a row: it was sent by another rank.
    """
    used, refused = 0, 0
    for n in range(len(index)):
        row = index[n]
        if not 0 <= row < len(slot):
            refused = -1 - n
            break
        if slot[row] < 0:
            slot[row], rows[used] = used, row
            sums[used] = 0
            used += 1
        to = sums[slot[row]]
        for d in range(values.shape[1]):
            to[d] += values[n, d]
    for n in range(used):
        slot[rows[n]] = -1
    return refused if refused else used
