"""A small problem and shard, and runs of parameter servers with them."""

from operator import attrgetter

import numpy as np

from dml import sim
from dml.metrics.timer import Timer
from dml.sim.delays import delay_distribution, step_seconds
from dml.strategies.serial import serial
from dml.strategies.server.report import Report, collect_reports
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup, server
from dml.types import Problem, RowBatch, Rows
from dml.wire.comm import Delayed, Metered
from dml.wire.plans.partition import partition
from dml.wire.server.consistency import Choice, consistency

ROWS, WIDTH, EXAMPLES, BATCH = 11, 3, 64, 29
DELAYS = "shifted_exponential:1,1"
CHOICE = Choice()


class Descent:
    """Gradient descent in numpy, independent of the shards of the library."""

    def __init__(self, values, rate=0.1):
        self.values, self.rate = values, np.float32(rate)

    def update(self, at, grads, share=1.0):
        self.values[at] -= self.rate * grads


def problem(dense=False):
    """Return a problem in which each example moves one row towards a point.

    Points differ in size by a factor of 1000, so that a sum depends on its order.
    """
    draws = np.random.default_rng(0)
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
            error = table[row_of[number]] - points[number]
            grads[row_of[number]] += error
            loss += 0.5 * float(error @ error)
        values = (grads / np.float32(len(numbers)))[rows]
        return loss / len(numbers), Rows(rows, values)

    def evaluate(table):
        return {"objective": float((0.5 * (table[row_of] - points) ** 2).sum(1).mean())}

    frequency = None if dense else np.bincount(row_of, minlength=ROWS)
    start = draws.random((ROWS, WIDTH)).astype(np.float32)
    rows = attrgetter("rows")
    return Problem(start, EXAMPLES, gradient, evaluate, take, rows, frequency)


def batches(clocks):
    draws = np.random.default_rng(1)
    return [draws.choice(EXAMPLES, BATCH, replace=False) for _ in range(clocks)]


def delayed(comm, delays, seed=3):
    """Return a communicator whose computations take random seconds."""
    return Delayed(
        Metered(comm), step_seconds(delay_distribution(delays), seed, comm.rank)
    )


def serve(comm, task, indices, make, who, rule, **options):
    """Train on servers; return steps and report of this rank, and all measurements.

    Args:
      comm: Communicator that counts words.
      task: Problem of a table.
      indices: Minibatches.
      make: rows -> Shard.
      who: Roles.
      rule: Consistency.
      **options: Other fields of Setup.
    """
    report = Report()
    how = {"comm": comm, "timer": Timer(comm.Wtime), "report": report}
    steps = [*server(task, indices, make, setup=Setup(who, rule, **options), **how)]
    rows, width = task.params.shape
    split = partition(rows, len(who.servers), task.frequency)
    return steps, report, collect_reports(comm, who, split, width, report)


def program(
    comm,
    name="bsp",
    *,
    servers=1,
    colocated=False,
    dense=False,
    clocks=12,
    choice=CHOICE,
    delays=None,
    make=Descent,
    **options,
):
    """Train on any communicator; return the measurements of all ranks on rank 0."""
    comm, task = delayed(comm, delays) if delays else Metered(comm), problem(dense)
    who = roles(comm.size, servers, colocated)
    indices = batches(clocks) if isinstance(clocks, int) else clocks
    rule = consistency(name, choice, who.workers)
    steps, _, found = serve(comm, task, indices, make, who, rule, **options)
    table = steps[-1].params()
    assert comm.rank or np.array_equal(table, found.table, equal_nan=True)
    return found


def ran(size, *args, order=0, **more):
    """Train on virtual ranks; return the measurements of all ranks."""
    return sim.run(lambda comm: program(comm, *args, **more), size, None, order)[0]


def alone(workers, dense=False, clocks=12):
    """Return the table of one rank that accumulates the same shards in order."""
    indices = batches(clocks) if isinstance(clocks, int) else clocks
    how = {
        "comm": sim.run(lambda comm: comm, 1)[0],
        "timer": Timer(),
        "accumulate": workers,
    }
    make = lambda rows: Descent(rows.copy())  # noqa: E731
    *_, last = serial(problem(dense), indices, make, **how)
    return last.params()
