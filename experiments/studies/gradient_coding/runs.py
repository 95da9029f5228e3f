"""Logistic regression of documents by each scheme, on virtual ranks."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count, repeat
from typing import Any, NamedTuple

from lab import estimates
import numpy as np

from dml import sim
from dml.data.minibatches import draws
from dml.data.sparse.documents import POSITIVE_GROUPS, documents
from dml.data.sparse.svmlight import generate
from dml.metrics.timer import Timer
from dml.models.sparse.logistic import problem as logistic_problem
from dml.sim.delays import delay_distribution, seconds
from dml.strategies.gradient_coding import gradient_coding
from dml.types import Batch, Comm, Problem, Request
from dml.update.table import table
from dml.wire.comm import Metered
from studies.gradient_coding.schemes import (
    CODES,
    Scheme,
    loaded,
    make_scheme,
    order_statistics,
    predicted,
)

NO_COST = sim.Uniform(0, 0, 0)  # messages take no time: only stragglers are measured
GENERATED = "generated"
SIZES = 1200, 60, 8  # examples, features, nonzero values of a row
DATA = [*POSITIVE_GROUPS, GENERATED]
Row = dict[str, Any]


class Task(NamedTuple):
    """A problem of documents and the settings of its training.

    Attributes:
      problem: Logistic regression; `evaluate` returns the AUC.
      batch: Examples in a minibatch; 0: all examples, so that a worker always computes
        the same parts. `backup` draws n/(n-s) times as many.
      optimizer: Update rule of rows.
      rate: Learning rate.
      updates: Number of updates.
      seed: Random seed of the order of examples and of the delays.
    """

    problem: Problem
    batch: int
    optimizer: str
    rate: float
    updates: int
    seed: int


def auc_problem(name: str) -> Problem:
    """Return the problem of a data set, evaluated by the area under the ROC curve."""
    training, held_out = generated() if name == GENERATED else documents(name)

    def evaluate(table_Tx1: np.ndarray) -> Mapping[str, float]:
        scores = held_out.inputs @ table_Tx1[:, 0]
        return {"auc": auc(scores, held_out.targets)}

    return logistic_problem(training, held_out, 0.0)._replace(evaluate=evaluate)


def generated() -> tuple[Batch, Batch]:
    """Return random (training, held-out) rows that are separated by a hyperplane."""
    inputs, labels = generate(*SIZES, seed=0)
    half = len(labels) // 2
    return Batch(inputs[:half], labels[:half]), Batch(inputs[half:], labels[half:])


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of pairs of a positive and a negative in the order of scores.

    A pair with equal scores counts half.
    """
    from scipy.stats import rankdata

    positive = labels > 0
    count, ranks = int(positive.sum()), rankdata(scores)
    least = count * (count + 1) / 2
    return float((ranks[positive].sum() - least) / (count * (len(labels) - count)))


def rows(task: Task, law: str, tail: str, workers: int, stragglers: int) -> Iterator:
    """Yield a row per scheme.

    Args:
      task: The problem and its settings.
      law: Delay distribution as text.
      tail: Key of TAILS.
      workers: Number n of workers.
      stragglers: Number s of stragglers.
    """
    delay = delay_distribution(law)
    draws_TxP = seconds(delay, task.seed, task.updates, workers)
    for name in CODES:
        scheme = make_scheme(name, workers, stragglers)
        seconds_TxP = loaded(delay, tail, scheme.load, draws_TxP)
        steps = train(task, scheme, seconds_TxP)
        taken_T = order_statistics(scheme, seconds_TxP)
        clock = np.array([step["seconds"] for step in steps])
        yield {
            "tail": tail,
            "workers": workers,
            "stragglers": stragglers,
            "scheme": scheme.name,
            "load": scheme.load,
            "predicted": predicted(scheme, delay, tail),
            "measured": float(clock[-1] / len(clock)),
            "virtual_error": float(abs(clock / np.cumsum(taken_T) - 1).max()),
            "auc": steps[-1]["auc"],
            "curve_seconds": clock.tolist(),
            "curve_auc": [step["auc"] for step in steps],
        }


def train(task: Task, scheme: Scheme, seconds_TxP: np.ndarray) -> list[Row]:
    """Return seconds and AUC after every update, of the master.

    Args:
      task: The problem and its settings.
      scheme: The scheme.
      seconds_TxP: Seconds of the computation of each update and worker.
    """
    workers, updates = scheme.plan.code.workers, task.updates
    update = partial(table, task.optimizer, rate=task.rate)

    def program(comm: Comm) -> list[Row]:
        messages = 2 * workers * updates
        estimates.warn(comm, f"{updates} updates by {scheme.name}", messages, "any")
        number = count()

        def work(share: float, unless: Request) -> bool:
            drawn = float(seconds_TxP[next(number), comm.rank])
            return comm.platform.compute(drawn, unless)

        timer, clock, measured = Timer(comm.Wtime), 0.0, []
        for step in gradient_coding(
            task.problem,
            minibatches(task, scheme.share),
            update,
            comm=Metered(comm),
            timer=timer,
            code=scheme.code,
            work=work,
        ):
            clock += sum(step.seconds.values())
            if comm.rank == workers:
                measures = task.problem.evaluate(step.params())
                measured.append({"seconds": clock, **measures})
        return measured

    *_, master = sim.run(program, workers + 1, NO_COST)
    return master


def minibatches(task: Task, share: float) -> Iterator[np.ndarray]:
    """Yield the indices of each minibatch.

    Args:
      task: The problem and its settings.
      share: Examples of a minibatch relative to those of the task.
    """
    examples = task.problem.examples
    if not task.batch and share == 1:
        (order,) = draws(examples, examples, task.seed, examples)
        yield from repeat(order, task.updates)
        return
    batch = round((task.batch or examples) * share)
    for numbers in draws(examples, batch, task.seed, batch * task.updates):
        yield numbers % examples
