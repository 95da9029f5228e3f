"""Minibatch descent to a target objective: numbers of examples, and seconds.

    examples  ▯▯▯▯ ▯▯▯▯ ▯▯▯▯ ▯▯▯▯      in random order, repeated
    windows   └──┘ the objective is evaluated at the end of each

A window is an epoch of the strategy on the examples of the window. It continues from
the table of the previous window.
"""

from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any, NamedTuple

import numpy as np

from dml.data.sparse.svmlight import generate, shuffled
from dml.metrics.timer import Timer
from dml.models.sparse import logistic_edges as logistic
from dml.models.sparse import problem as models
from dml.models.sparse.logistic_edges import Documents
from dml.models.sparse.svm import MAX_DECAY, matrix
from dml.strategies.shared.cyclades import cyclades
from dml.strategies.shared.workers import Descent, orders
from dml.train import curve
from dml.types import BadInput, Batch, CountedComm, Edges, Problem

DATA = ["diverse", "repeated"]
TIMED = 6  # timed windows; the first warms the caches
TRIED = 3  # epochs after which a rate without progress is abandoned
PATIENCE = 2.0  # a rate is abandoned at this multiple of the fewest examples
LOWEST = 2.0**-12  # lowest tried rate as a ratio to the first one


class Plan(NamedTuple):
    """A problem, its initial objective and its target.

    Attributes:
      problem: The problem.
      first: Objective of the start value.
      goal: Target objective.
      window: Least number of examples between two evaluations.
      limit: Number of examples after which a rate is abandoned.
    """

    problem: Problem
    first: float
    goal: float
    window: int
    limit: int


class Fastest(NamedTuple):
    """The rate with the fewest examples to the target; inf if no rate reaches it."""

    rate: float
    examples: float


def planned(name: str, values: Any) -> Plan:
    """Generate data with the parsed flags, and compute its least objective."""
    if values.nonzeros > values.features or 2 * values.copies > values.examples:
        raise BadInput(
            f"expected --nonzeros of at most {values.features}, the features, and "
            f"--copies of at most half of {values.examples} examples, got "
            f"{values.nonzeros} and {values.copies}; pass fewer"
        )
    size = values.examples, values.features, values.nonzeros
    batch = generated(size, values.copies if name == "repeated" else 1, values.seed)
    data = logistic.documents(shuffled(batch, values.seed), values.mu)
    start = np.zeros(values.features, np.float32)
    least = logistic.objective(logistic.optimum(data, values.features), data)
    return Plan(
        models.problem(logistic, data, start),
        logistic.objective(start, data),
        (1 + values.within) * least,
        max(1, values.examples // values.looks),
        values.epochs * values.examples,
    )


def generated(size: tuple[int, int, int], copies: int, seed: int) -> Batch:
    """Generate examples, features and nonzeros; each example occurs `copies` times."""
    examples, *rest = size
    distinct = generate(examples // copies, *rest, seed)
    again = np.arange(examples) % len(distinct.targets)
    return Batch(distinct.inputs[again], distinct.targets[again])


def diversity(data: Documents, width: int) -> Callable[[np.ndarray], float]:
    """Return table -> n Σ|g_i|² / |Σ g_i|², the bound of a batch (Yin 2018, def. 2).

    g_i is the gradient of an example's log loss and of the norm. The bound does not
    change if all examples are repeated; n copies of one example have the bound 1.
    """
    from scipy.special import expit

    inputs, labels = matrix(data, width), data.labels.astype(np.float64)
    lengths = np.asarray(inputs.multiply(inputs).sum(axis=1)).ravel()

    def bound(table: np.ndarray) -> float:
        weights, n = table.astype(np.float64), len(labels)
        scores = inputs @ weights
        slopes = -labels * expit(-labels * scores)  # g_i = slope x_i + μ w
        squares = slopes**2 @ lengths + 2 * data.mu * slopes @ scores
        squares += n * data.mu**2 * weights @ weights
        total = inputs.T @ slopes + n * data.mu * weights
        return float(n * squares / (total @ total))

    return bound


def part(data: Documents, first: int, last: int) -> Documents:
    """Return views of examples first … last - 1."""
    starts = data.edges.starts
    low, high = starts[first], starts[last]
    edges = Edges(starts[first : last + 1] - low, data.edges.rows[low:high])
    return data._replace(
        edges=edges, values=data.values[low:high], labels=data.labels[first:last]
    )


def descent(
    plan: Plan, batch: int, rate: float, comm: CountedComm, threads: int = 1
) -> Iterator[tuple[int, np.ndarray, float]]:
    """Yield for each window: examples so far, table, seconds of an update.

    An update adds the gradients of a batch, so the rate is that of one example.
    """
    kernel, table, seen = plan.problem.kernel, plan.problem.params, 0
    everything = np.ones(len(table), np.bool_)
    window = -(-max(batch, plan.window) // batch) * batch
    for turn in count():
        for first in range(0, plan.problem.examples, window):
            last = min(first + window, plan.problem.examples)
            block = part(kernel.data, first, last)
            problem = models.problem(kernel.model, block, table)
            size = min(batch, last - first)
            steps = cyclades(
                problem,
                islice(orders(problem.examples, size, turn), 1),
                Descent(lambda epoch: rate),
                comm=comm,
                timer=Timer(),
                deferred=everything,
                batch=size,
                threads=threads,
            )
            search = curve(steps, lambda table: {"table": table}, finite=False).summary
            table, seen = search["table"], seen + last - first
            spent = search["update_seconds"] + search["wait_seconds"]
            yield seen, table, spent / search["steps"]


def reached(
    plan: Plan, batch: int, rate: float, comm: CountedComm, limit: float
) -> float:
    """Return the number of examples to the target; inf above the limit."""
    kernel = plan.problem.kernel
    steps = max(batch + plan.window, MAX_DECAY)
    if rate * kernel.data.mu * steps > MAX_DECAY / 2:  # the norm's scale would be 0
        return np.inf
    for seen, table, _ in descent(plan, batch, rate, comm):
        objective = kernel.model.objective(table, kernel.data)
        if objective <= plan.goal:
            return seen
        lost = seen >= TRIED * plan.problem.examples and objective > plan.first
        if seen >= limit or lost or not np.isfinite(objective):
            break
    return np.inf


def fastest(plan: Plan, batch: int, rate: float, comm: CountedComm) -> Fastest:
    """Search by factors of 2, from this rate, the rate with the fewest examples."""
    tried: dict[float, float] = {}

    def examples(rate: float) -> float:
        if rate not in tried:
            limit = min(plan.limit, PATIENCE * min(tried.values(), default=np.inf))
            tried[rate] = reached(plan, batch, rate, comm, limit)
        return tried[rate]

    best = rate
    while examples(best) == np.inf and best > LOWEST * rate:
        best /= 2
    for factor in (0.5, 2.0):
        while examples(best * factor) < examples(best):
            best *= factor
    return Fastest(best, examples(best))


def bounds(plan: Plan, batch: int, search: Fastest, comm: CountedComm) -> list[float]:
    """Return the bound of the batch at the start, and along the fastest run."""
    bound = diversity(plan.problem.kernel.data, len(plan.problem.params))
    values = [bound(plan.problem.params)]
    for seen, table, _ in descent(plan, batch, search.rate, comm):
        if not seen <= search.examples < np.inf:
            break
        values.append(bound(table))
    return values


def step_seconds(
    plan: Plan, batch: int, rate: float, comm: CountedComm, threads: int
) -> float:
    """Return the median seconds of an update by this number of workers."""
    wide = plan._replace(window=max(plan.window, plan.problem.examples // 16))
    windows = islice(descent(wide, batch, rate, comm, threads), TIMED)
    return float(np.median([seconds for _, _, seconds in windows][1:]))
