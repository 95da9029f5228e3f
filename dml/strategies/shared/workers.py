"""The workers of one host: the threads of each rank, with shared memory.

    rank 0  workers 0 1      rank 1  workers 2 3      one host, one copy of the data

The strategies in this folder call `train_epochs`, which runs the workers, sums their
losses and yields Steps.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from operator import attrgetter
from threading import Barrier
from typing import Any, NamedTuple

import numpy as np

from dml.metrics.timer import Timer
from dml.types import BadInput, CountedComm, Kernel, Problem, Step
from dml.wire.collectives import tree_allreduce
from dml.wire.comm import first_of_each_host
from dml.wire.memory import hogwild as hogwild_policy
from dml.wire.memory.lock_free import lock_free_loop
from dml.wire.memory.shared import shared_zeros
from dml.wire.memory.state import EpochSettings, Order, State, Worker, state
from dml.wire.plans.topology import chunks


class Descent(NamedTuple):
    """The update of strategies that use a kernel.

    Attributes:
      rate: Epoch (1, 2, ...) -> learning rate in this epoch.
      momentum: Momentum (Polyak); 0 for none.
    """

    rate: Callable[[int], float]
    momentum: float = 0.0


def orders(examples: int, batch: int, seed: int = 0) -> Iterator[Order]:
    """Yield the order of each epoch, without end.

    Args:
      examples: Number of examples.
      batch: Number of examples in a block; the last block of an epoch may be shorter.
      seed: Random seed of the order.
    """
    if not 1 <= batch <= examples:
        raise BadInput(
            f"expected a batch of 1 to {examples} examples, got {batch}; "
            f"pass --batch=<at most {examples}>"
        )
    blocks = examples // batch
    for epoch in count(1):
        visits = np.random.default_rng([seed, epoch]).permutation(blocks)
        if examples % batch:
            visits = np.append(visits, blocks)
        yield Order(visits, batch, examples)


class Workers:
    """The workers of all ranks; owns the threads of this rank.

    All ranks must be on one host.

    Args:
      comm: Ranks.
      threads: Number of workers of each rank.
      examples: Number of examples of the problem, at least one per worker.
    """

    def __init__(self, comm: CountedComm, threads: int, examples: int):
        hosts = max(comm.platform.hosts()) + 1
        if hosts > 1:
            raise BadInput(
                "expected all ranks on one host, whose memory they share, got ranks "
                f"on {hosts}; start them on one host, or use servers "
                "(--strategy=server) or rotation (--strategy=rotation)"
            )
        self.comm, self.threads = comm, threads
        self.count = comm.size * threads
        if self.count > examples:
            raise BadInput(
                f"expected at most {examples} workers for {examples} examples, got "
                f"{self.count}; pass fewer ranks or fewer --threads"
            )
        first = comm.rank * threads
        self.local = [Worker(first + thread, self.count) for thread in range(threads)]
        self.allocate = partial(shared_zeros, comm)
        self.pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None
        if self.pool:  # start all threads before the first epoch
            started = Barrier(threads - 1)
            list(self.pool.map(lambda _: started.wait(), range(threads - 1)))

    def run(self, work: Callable[[Worker], np.ndarray]) -> np.ndarray:
        """Run work(worker) for the workers of this rank; return the sum of the results.

        The calling thread runs the first worker, as waking a thread takes as long as
        100 updates.
        """
        first, *others = self.local
        results = self.pool.map(work, others) if self.pool else ()
        return np.array([work(first), *results], np.float64).sum(axis=0)

    def close(self) -> None:
        """End the threads."""
        if self.pool:
            self.pool.shutdown()


def epoch_settings(
    problem: Problem, update: Descent, epoch: int, delay: int = 0
) -> tuple[Any, EpochSettings]:
    """Return the data and the learning rate, momentum and delay of an epoch.

    Args:
      problem: Problem with a kernel.
      update: Learning rates and momentum.
      epoch: Number of the epoch, from 1.
      delay: Number of extra memory reads per gradient.
    """
    kernel, rate = problem.kernel, update.rate(epoch)
    data = kernel.model.with_rate(kernel.data, rate) if kernel.model else kernel.data
    scalar = problem.params.dtype.type
    return data, EpochSettings(scalar(rate), scalar(update.momentum), delay)


def settle(kernel: Kernel, data: Any, steps: int, *tables: np.ndarray) -> None:
    """Apply the deferred decay of `steps` steps to the tables, in place."""
    for table in tables if kernel.model else ():
        kernel.model.settle(table, data, steps)


def serial_descent(
    problem: Problem,
) -> Callable[[np.ndarray, Any, np.ndarray, EpochSettings], float]:
    """Return (table, data, blocks, settings) -> summed loss; it updates the table.

    The blocks are visited one after another. Without a fused kernel a block is an edge.
    """
    kernel = problem.kernel
    if kernel.fused:
        return lambda table, data, blocks, settings: kernel.fused(
            table, data, blocks, settings.rate
        )
    run = lock_free_loop(kernel.model, hogwild_policy)
    grads = allocate_gradients(problem)
    empty = state(problem.params[:1], 1, False, False, np.zeros)

    def descend(
        table: np.ndarray, data: Any, blocks: np.ndarray, settings: EpochSettings
    ) -> float:
        order = Order(blocks, 1, len(blocks))
        current = empty._replace(table=table)
        loss, *_ = run(current, data, order, Worker(0, 1), settings, grads)
        return loss

    return descend


def allocate_gradients(problem: Problem) -> np.ndarray:
    """Allocate memory for the gradients of the edge with the most rows."""
    max_rows = int(np.diff(problem.kernel.data.edges.starts).max())
    return np.empty((max_rows, *problem.params.shape[1:]), problem.params.dtype)


class EpochTable(NamedTuple):
    """The functions by which `train_epochs` reads the table after an epoch.

    Attributes:
      settle: (data, steps of the epoch) -> None; applies the deferred decay to this
        rank's part of the table.
      copy: () -> copy of the table; called on rank 0.
      clear: () -> None; resets counters before the next epoch; called on rank 0.
      measure: sums over workers of the results of `work` -> measures by name.
    """

    settle: Callable[[Any, int], None]
    copy: Callable[[], np.ndarray]
    clear: Callable[[], None] = lambda: None
    measure: Callable[[np.ndarray], dict[str, float]] = lambda sums: {}


def shared_table(problem: Problem, shared: State, workers: Workers) -> EpochTable:
    """Return the functions of a table that workers share; rank 0 initialises it."""
    if workers.comm.rank == 0:
        shared.table[...] = problem.params
    chunk = chunks(len(shared.table), workers.comm.size)[workers.comm.rank]

    def settle_chunk(data: Any, steps: int) -> None:
        settle(problem.kernel, data, steps, shared.table[chunk], shared.velocity[chunk])

    return EpochTable(settle_chunk, shared.table.copy)


def train_epochs(
    problem: Problem,
    batches: Iterable[Order],
    update: Descent,
    *,
    workers: Workers,
    timer: Timer,
    work: Callable[[Any, Order, EpochSettings, Worker], np.ndarray],
    table: EpochTable,
    counts: Sequence[str] = ("rows_changed",),
    delay: int = 0,
    updates: Callable[[Order], int] = attrgetter("steps"),
) -> Iterator[Step]:
    """Train by epochs; yield a Step after each epoch.

    Args:
      problem: Problem to train, with a kernel.
      batches: Order of each epoch.
      update: Learning rates and momentum.
      workers: Workers of all ranks.
      timer: Measures the phases.
      work: (data, order, settings, worker) -> summed losses, one or more, followed by
        the values of `counts`. The results are summed over workers.
      table: Access to the table.
      counts: Names of the last elements of the results of `work`.
      delay: Number of extra memory reads per gradient.
      updates: order -> number of updates in an epoch; by default one per example.
    """
    comm = workers.comm
    number = 0  # of updates so far
    with timer("compile"):
        data, settings = epoch_settings(problem, update, 1)
        no_blocks = Order(np.empty(0, np.int64), 1, 0)
        first_of_each_host(
            comm, lambda: work(data, no_blocks, settings, workers.local[0])
        )
    comm.Barrier()
    bytes_before = comm.bytes_sent
    for epoch, order in enumerate(timer.waits("update", batches), 1):
        with timer("update"):
            comm.platform.work(1)
            data, settings = epoch_settings(problem, update, epoch, delay)
            sums = workers.run(partial(work, data, order, settings))
        with timer("wait"):
            tree_allreduce(comm, sums)
        with timer("update"):
            table.settle(data, order.steps)
        losses = len(sums) - len(counts)  # number of losses, which come first
        measures = dict(zip(counts, sums[losses:].tolist(), strict=True))
        measures |= table.measure(sums)
        with timer("wait"):
            comm.Barrier()
        bytes_sent = comm.bytes_sent - bytes_before
        bytes_before = comm.bytes_sent
        number += updates(order)
        yield Step(
            number=number,
            loss=sums[:losses].sum() / order.steps,
            params=partial(collect, table, comm),
            examples=order.steps,
            seconds=timer.lap(),
            words_sent=bytes_sent // sums.itemsize,
            measures=measures,
            epoch=epoch,
        )
        if comm.rank == 0:
            table.clear()
        comm.Barrier()


def collect(table: EpochTable, comm: CountedComm) -> np.ndarray | None:
    """Return a copy of the table on rank 0, None elsewhere; collective."""
    copy = table.copy() if comm.rank == 0 else None
    comm.Barrier()
    return copy
