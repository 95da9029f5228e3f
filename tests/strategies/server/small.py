"""A small problem, a small shard, and runs of them that the server's tests share."""

from operator import attrgetter

import numpy as np

from dml import sim
from dml.metrics.timer import Timer
from dml.sim.delays import delay_distribution, drawing
from dml.strategies.serial import serial
from dml.strategies.server.report import Report, collected
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup, server
from dml.strategies.server.workers import WorkerOptions
from dml.types import Problem, RowBatch, Rows
from dml.wire.comm import Delayed, Metered
from dml.wire.plans.partition import partition
from dml.wire.server.consistency import Choice, consistency
from tests.strategies.small import alone as one_rank

ROWS, WIDTH, EXAMPLES, BATCH = 11, 3, 64, 29
DELAYS = "shifted_exponential:1,1"
CHOICE, HABITS = Choice(), WorkerOptions()


class Descent:
    """Plain descent, as an independent Shard: numpy, a line."""

    def __init__(self, values, rate=0.1):
        self.values, self.rate = values, np.float32(rate)

    def update(self, at, grads, share=1.0):
        self.values[at] -= self.rate * grads


def problem(dense=False, seed=0):
    """Each example pulls one row towards its own point.

    Points differ in size a thousandfold, so that the order of a sum shows in its bits.
    """
    draws = np.random.default_rng(seed)
    sizes = 10 ** draws.uniform(0, 3, (EXAMPLES, 1))
    points = (sizes * draws.standard_normal((EXAMPLES, WIDTH))).astype(np.float32)
    row_of = draws.integers(ROWS, size=EXAMPLES)

    def take(numbers):
        rows = slice(0, ROWS) if dense else np.unique(row_of[numbers])
        return RowBatch(numbers, rows)

    def gradient(table, batch):
        numbers, rows = batch
        grads, loss = np.zeros((ROWS, WIDTH), np.float32), 0.0
        for number in numbers:
            miss = table[row_of[number]] - points[number]
            grads[row_of[number]] += miss
            loss += 0.5 * float(miss @ miss)
        values = (grads / np.float32(len(numbers)))[rows]
        return loss / len(numbers), Rows(rows, values)

    def evaluate(table):
        return {"objective": float((0.5 * (table[row_of] - points) ** 2).sum(1).mean())}

    frequency = None if dense else np.bincount(row_of, minlength=ROWS)
    start = draws.random((ROWS, WIDTH)).astype(np.float32)
    rows = attrgetter("rows")
    return Problem(start, EXAMPLES, gradient, evaluate, take, rows, frequency)


def batches(clocks, seed=1):
    draws = np.random.default_rng(seed)
    return [draws.choice(EXAMPLES, BATCH, replace=False) for _ in range(clocks)]


def program(
    comm,
    name="bsp",
    *,
    servers=1,
    colocated=False,
    dense=False,
    clocks=12,
    choice=CHOICE,
    worker_options=HABITS,
    delays=None,
    make=Descent,
    snapshots=0,
    of=problem,
):
    """Train on any communicator; return what rank 0 collects."""
    comm, task = Metered(comm), of(dense)
    if delays:
        comm = Delayed(comm, drawing(delay_distribution(delays), 3, comm.rank))
    who = roles(comm.size, servers, colocated)
    rule, report = consistency(name, choice, who.workers), Report()
    setup = Setup(who, rule, worker_options=worker_options, snapshots=snapshots)
    timer = Timer(comm.Wtime)
    how = {"comm": comm, "timer": timer, "setup": setup, "report": report}
    *_, last = server(task, batches(clocks), make, **how)
    table = last.params()
    split = partition(ROWS, len(who.servers), task.frequency)
    found = collected(comm, who, split, WIDTH, report)
    assert comm.rank or np.array_equal(table, found.table, equal_nan=True)
    return found


def ran(size, *args, network=None, order=0, **more):
    """Train on virtual ranks; return what rank 0 collected."""
    return sim.run(lambda comm: program(comm, *args, **more), size, network, order)[0]


def alone(workers, dense=False, clocks=12, make=Descent):
    """Return the table of one rank that accumulates the same shards in order."""
    task = problem(dense)
    how = {"comm": one_rank(), "timer": Timer(), "accumulate": workers}
    *_, last = serial(task, batches(clocks), lambda rows: make(rows.copy()), **how)
    return last.params()
