"""Seconds of a step on p ranks: simulated with the real code, and by formula.

A rank's computation takes the time of a stated processor: operations over their rate,
or bytes over the memory's bandwidth, whichever is longer. Messages take the time of the
network. The formula has the same terms, for ranks with equal parts.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dml import sim
from dml.metrics.timer import Timer
from dml.models.linear.block import LINE, Work
from dml.models.linear.problem import Columns
from dml.strategies.linear.s_step import s_step
from dml.types import Comm, Problem, no_op
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.costs.allreduce import Job, Rates, seconds
from dml.wire.costs.linear import best_ranks, step_words

ALGORITHM = "butterfly"  # lg p rounds of the whole buffer, which is small
ITEMSIZE = 4  # bytes of a float32
RATE = 1e-3  # learning rate; no time depends on it


class Processor(NamedTuple):
    """A core.

    Attributes:
      operations: Floating-point operations in a second.
      bandwidth: Bytes of memory in a second.
    """

    operations: float
    bandwidth: float

    def seconds(self, operations: float, nbytes: float) -> float:
        """Return the seconds of an operation."""
        return max(operations / self.operations, nbytes / self.bandwidth)

    def work(self, comm: Comm) -> Work:
        """Return the call by which an operation takes its time on a virtual rank."""
        return lambda *size: comm.platform.compute(self.seconds(*size))


class Technique(NamedTuple):
    """A way to step: rows of a minibatch, minibatches of a round, groups of ranks."""

    batch: int
    steps: int = 1
    groups: int = 1

    def __str__(self) -> str:
        steps = f" s={self.steps}" if self.steps > 1 else ""
        grid = f" {self.groups}xp/{self.groups}" if self.groups > 1 else ""
        return f"b={self.batch}{steps}{grid}"

    @property
    def key(self) -> str:
        """Return a name for keys of rows."""
        return f"b{self.batch}_s{self.steps}_g{self.groups}"

    @property
    def words(self) -> int:
        """Return the words of the all-reduce over columns, for a round."""
        return step_words(self.steps, self.batch // self.groups)


class Machine(NamedTuple):
    """The processor of each rank, and the rates of messages."""

    processor: Processor
    rates: Rates

    @property
    def network(self) -> sim.Uniform:
        """Return the virtual network."""
        return sim.Uniform(self.rates.alpha, self.rates.beta, self.rates.gamma)


class Task(NamedTuple):
    """A linear model, and the number of nonzero features of an example; 0: all."""

    problem: Problem
    nonzeros: int

    @property
    def columns(self) -> Columns:
        """Return the features."""
        found: Columns = self.problem.products.columns
        return found


def minibatches(task: Task, technique: Technique, rounds: int) -> list[np.ndarray]:
    """Return the rows of each minibatch."""
    count = technique.batch * technique.steps * rounds
    rows = np.resize(np.arange(task.columns.examples), count)
    return np.split(rows, technique.steps * rounds)


def trained(
    comm: Comm,
    task: Task,
    technique: Technique,
    rounds: int,
    work: Work = no_op,
    algorithm: str = ALGORITHM,
) -> list[tuple[float, int]]:
    """Return the seconds and the words sent of each round on this rank."""
    products = task.problem.products._replace(work=work)
    made = s_step(
        task.problem._replace(products=products),
        minibatches(task, technique, rounds),
        comm=Metered(comm),
        timer=Timer(comm.Wtime),
        allreduce=ALLREDUCE[algorithm],
        rate=RATE,
        steps=technique.steps,
        groups=technique.groups,
    )
    return [(sum(step.seconds.values()), step.words_sent) for step in made]


def simulated(
    task: Task,
    technique: Technique,
    size: int,
    machine: Machine,
    algorithm: str = ALGORITHM,
) -> tuple[float, float]:
    """Return the seconds of a step of the slowest rank, and its words, simulated."""

    def on_rank(comm: Comm) -> tuple[float, int]:
        work = machine.processor.work(comm)
        return trained(comm, task, technique, 1, work, algorithm)[0]

    took, words = zip(*sim.run(on_rank, size, machine.network), strict=True)
    return max(took) / technique.steps, max(words) / technique.steps


def computation(
    task: Task, technique: Technique, size: int, processor: Processor
) -> float:
    """Return the seconds of a rank's passes over its columns, for a step."""
    columns = task.columns.features * technique.groups / size
    rows, vector = technique.batch * technique.steps // technique.groups, ITEMSIZE
    if task.nonzeros:
        count = rows * task.nonzeros * technique.groups / size
        taken = 2 * ((4 + ITEMSIZE) * count + 4 * (rows + 1))
        passes = [(2 * count, count * (8 + way * LINE)) for way in (1, 2)]
        gram = (count * rows, count * rows * (4 + ITEMSIZE))
    else:
        count = rows * columns
        taken = 2 * ITEMSIZE * count
        passes = [
            (2 * count, ITEMSIZE * count + way * columns * vector) for way in (1, 2)
        ]
        gram = (count * rows, ITEMSIZE * count)
    work = [(0.0, taken), *passes, *([gram] if technique.steps > 1 else [])]
    return sum(processor.seconds(*each) for each in work) / technique.steps


def predicted(task: Task, technique: Technique, size: int, machine: Machine) -> float:
    """Return the seconds of a step by the formula."""
    width, words = size // technique.groups, technique.words
    rows = technique.batch * technique.steps // technique.groups
    columns = -(-task.columns.features // width) + 1  # of a rank, and a loss
    on_all = machine.processor.seconds(2 * rows**2, 2 * ITEMSIZE * words)
    wire = seconds(ALGORITHM, Job(width, words, ITEMSIZE), machine.rates)
    if technique.groups > 1:
        averages = Job(technique.groups, columns, ITEMSIZE)
        wire += seconds(ALGORITHM, averages, machine.rates)
    own = computation(task, technique, size, machine.processor)
    return own + (on_all + wire) / technique.steps


def limit(task: Task, technique: Technique, machine: Machine) -> float:
    """Return p* by the formula, for one group."""
    rates, nbytes = machine.rates, technique.words * ITEMSIZE
    a_round = rates.alpha + nbytes * (rates.beta + rates.gamma)
    one = computation(task, technique, 1, machine.processor)
    return best_ranks(one, a_round, technique.steps)


def fitted_limit(sizes: Sequence[int], took: Sequence[float]) -> float:
    """Return p* of seconds on powers of two, by a fit of c + T/p + a lg p."""
    p = np.array(sizes, float)
    terms = np.column_stack([np.ones(len(p)), 1 / p, np.log2(p)])
    _, work, a_round = np.linalg.lstsq(terms, np.array(took), rcond=None)[0]
    return best_ranks(max(work, 0.0), a_round)
