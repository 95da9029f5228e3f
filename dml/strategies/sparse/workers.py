"""The workers of one host: each rank's threads, on one table in shared memory.

    rank 0  threads 0 1      rank 1  threads 2 3      one host, one copy of everything

A Sparse problem and Settings in; sums over all workers, and Steps, out.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dml.metrics.timer import Timer
from dml.types import BadInput, CountedComm, SparseModel, Step
from dml.wire.memory.shared import share
from dml.wire.memory.state import Order, Pace, State, Worker
from dml.wire.messages import first_of_each_host, tree_allreduce
from dml.wire.topology import chunks


class Sparse(NamedTuple):
    """What is learned: a module of models, its data, and the table to begin with."""

    model: SparseModel
    data: Any  # its first field is `edges`
    start: np.ndarray


class Settings(NamedTuple):
    """How all ways of updating go about it."""

    rate: Callable[[int], float]  # of an epoch: 1, 2, 3, …
    batch: int  # edges of a block
    seed: int = 0
    momentum: float = 0.0
    counting: bool = False  # how often each row is changed: what is lost shows
    delay: int = 0  # looks at a number that each gradient takes longer


class Workers:
    """Owns a rank's threads; all ranks must be on one host."""

    def __init__(self, comm: CountedComm, threads: int = 1):
        if max(comm.platform.hosts()):
            raise BadInput(
                "expected all ranks on one host, whose memory they share, got ranks "
                f"on {max(comm.platform.hosts()) + 1}; start them on one host, or use "
                "servers (experiments/server.py) or rotation (experiments/glove.py)"
            )
        self.comm, self.threads = comm, threads
        self.count = comm.size * threads
        first = comm.rank * threads
        self.mine = [Worker(first + thread, self.count) for thread in range(threads)]
        self.allocate = partial(share, comm)
        self.pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def each(self, call: Callable[[Worker], tuple[float, ...]]) -> np.ndarray:
        """Call every worker; return the sums of what all return, when all are done."""
        first, *others = self.mine
        # this thread is the first worker: to wake one takes as long as 100 updates
        ahead = self.pool.map(call, others) if self.pool else ()
        return np.array([call(first), *ahead], np.float64).sum(axis=0)

    def close(self) -> None:
        """End the threads."""
        if self.pool:
            self.pool.shutdown()


@contextmanager
def workers(comm: CountedComm, threads: int = 1) -> Iterator[Workers]:
    """Begin with threads that are ended however the run ends."""
    crew = Workers(comm, threads)
    try:
        yield crew
    finally:
        crew.close()


def fitting(problem: Sparse, settings: Settings, crew: Workers) -> None:
    """Refuse what no epoch could be made of."""
    edges = len(problem.data.edges.starts) - 1
    if not edges:
        raise BadInput("expected examples, got none; pass data that has some")
    if crew.count > edges:
        raise BadInput(
            f"expected at most {edges} workers for {edges} examples, got {crew.count}; "
            "pass fewer ranks or --threads"
        )
    if not 1 <= settings.batch <= edges:
        raise BadInput(
            f"expected a batch of 1 to {edges} examples, got {settings.batch}; "
            f"pass --batch=<at most {edges}>"
        )


def visits(settings: Settings, epoch: int, edges: int) -> Order:
    """Draw the order in which an epoch visits the blocks; a shorter one is the last."""
    full = edges // settings.batch
    order = np.random.default_rng([settings.seed, epoch]).permutation(full)
    if edges % settings.batch:
        order = np.append(order, full)
    return Order(order, settings.batch, edges)


def paced(problem: Sparse, settings: Settings, epoch: int) -> tuple[Any, Pace]:
    """Return the data and the pace of an epoch."""
    kind, rate = problem.start.dtype.type, settings.rate(epoch)
    pace = Pace(kind(rate), kind(settings.momentum), settings.delay)
    return problem.model.paced(problem.data, rate), pace


def room(problem: Sparse) -> np.ndarray:
    """Make room for the gradients of the edge with the most rows."""
    most = int(np.diff(problem.data.edges.starts).max())
    return np.empty((most, *problem.start.shape[1:]), problem.start.dtype)


class Table(NamedTuple):
    """The table at an epoch's end: how it becomes the true one, what rank 0 gives."""

    settle: Callable[[Any], None]  # the epoch's data
    give: Callable[[], np.ndarray]  # a copy
    clear: Callable[[], None]  # what is counted anew in each epoch; by rank 0
    measure: Callable[[np.ndarray], dict[str, float]]  # what the workers' sums say


def one_table(problem: Sparse, state: State, crew: Workers) -> Table:
    """Return what is done with a table that all workers share; rank 0 fills it."""
    if crew.comm.rank == 0:
        state.table[...] = problem.start
    mine = chunks(len(state.table), crew.comm.size)[crew.comm.rank]

    def settle(data: Any) -> None:
        steps = len(data.edges.starts) - 1
        for one in (state.table, state.velocity):
            problem.model.settle(one[mine], data, steps)

    return Table(settle, state.table.copy, lambda: None, lambda sums: {})


def epochs(
    problem: Sparse,
    settings: Settings,
    crew: Workers,
    timer: Timer,
    work: Callable[..., tuple[float, ...]],
    table: Table,
) -> Iterator[Step]:
    """Let work(data, order, pace, worker) take every worker through epoch after epoch.

    It returns the loss and the rows changed, which are summed over workers.
    """
    edges, epoch = len(problem.data.edges.starts) - 1, 0
    comm = crew.comm
    with timer("compile"):
        data, pace = paced(problem, settings, 1)
        nothing = Order(np.empty(0, np.int64), settings.batch, 0)
        first_of_each_host(comm, lambda: work(data, nothing, pace, crew.mine[0]))
    comm.Barrier()
    before = comm.bytes_sent
    while True:
        epoch += 1
        with timer("update"):
            order = visits(settings, epoch, edges)
            data, pace = paced(problem, settings, epoch)
            sums = crew.each(partial(work, data, order, pace))
        with timer("wait"):
            tree_allreduce(comm, sums)
        with timer("update"):
            table.settle(data)
        measures = {"rows_changed": float(sums[1]), **table.measure(sums)}
        with timer("wait"):
            comm.Barrier()
        sent, before = comm.bytes_sent - before, comm.bytes_sent
        yield Step(
            epoch,
            sums[0] / edges,
            lambda: collect(table, comm),
            edges,
            timer.lap(),
            sent // sums.itemsize,
            measures,
        )
        if comm.rank == 0:
            table.clear()
        comm.Barrier()


def collect(table: Table, comm: CountedComm) -> np.ndarray | None:
    """Return the table on rank 0, while nobody writes."""
    found = table.give() if comm.rank == 0 else None
    comm.Barrier()
    return found
