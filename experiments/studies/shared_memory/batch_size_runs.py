"""Minibatch descent to a target objective: numbers of examples, and seconds.

    examples  ▯▯▯▯ ▯▯▯▯ ▯▯▯▯ ▯▯▯▯      in random order, repeated
    windows   └──┘ the objective is evaluated at the end of each window

A window is an epoch of the strategy on the examples of the window. It continues from
the table of the previous window.
"""

from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any, NamedTuple

import numpy as np

from dml.data.sparse.svmlight import generate, shuffle
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
TIMED_WINDOWS = 6  # windows of a timing; the first warms the caches
TRIAL_EPOCHS = 3  # a rate is abandoned if the objective has not fallen after them
MAX_EXAMPLES_RATIO = 2.0  # a rate is abandoned at this multiple of the fewest examples
LOWEST = 2.0**-12  # lowest tried rate as a ratio to the first one


class BatchSizePlan(NamedTuple):
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
    """The rate with the fewest examples to the target.

    Attributes:
      rate: Learning rate.
      examples: Number of examples to the target; inf if no rate reaches it.
    """

    rate: float
    examples: float


def plan_from_flags(name: str, values: Any) -> BatchSizePlan:
    """Generate the data set of a name in DATA, and compute its least objective."""
    if values.nonzeros > values.features:
        raise BadInput(
            f"expected --nonzeros of at most {values.features}, the number of "
            f"--features, got {values.nonzeros}; pass fewer"
        )
    if 2 * values.copies > values.examples:
        raise BadInput(
            f"expected --copies of at most half of {values.examples} --examples, got "
            f"{values.copies}; pass fewer"
        )
    size = values.examples, values.features, values.nonzeros
    batch = generated(size, values.copies if name == "repeated" else 1, values.seed)
    data = logistic.documents(shuffle(batch, values.seed), values.mu)
    start = np.zeros(values.features, np.float32)
    least = logistic.objective(logistic.optimum(data, values.features), data)
    return BatchSizePlan(
        models.problem(logistic, data, start),
        logistic.objective(start, data),
        (1 + values.within) * least,
        max(1, values.examples // values.looks),
        values.epochs * values.examples,
    )


def generated(size: tuple[int, int, int], copies: int, seed: int) -> Batch:
    """Generate examples; each one occurs `copies` times.

    size: numbers of examples, of features and of nonzeros per example.
    """
    examples, features, nonzeros = size
    distinct = generate(examples // copies, features, nonzeros, seed)
    index = np.arange(examples) % len(distinct.targets)
    return Batch(distinct.inputs[index], distinct.targets[index])


def diversity(data: Documents, width: int) -> Callable[[np.ndarray], float]:
    """Return the bound of the batch size (Yin 2018, def. 2), a function of the table.

    The bound is n Σ|g_i|² / |Σ g_i|², where g_i is the gradient of the log loss of
    example i and of the L2 term. It does not change if all examples are repeated; n
    copies of one example have the bound 1.
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


def select_examples(data: Documents, first: int, last: int) -> Documents:
    """Return views of examples first … last - 1."""
    starts = data.edges.starts
    low, high = starts[first], starts[last]
    edges = Edges(starts[first : last + 1] - low, data.edges.rows[low:high])
    return data._replace(
        edges=edges, values=data.values[low:high], labels=data.labels[first:last]
    )


def descent(
    plan: BatchSizePlan, batch: int, rate: float, comm: CountedComm, threads: int = 1
) -> Iterator[tuple[int, np.ndarray, float]]:
    """Train; yield for each window: examples so far, table, seconds of an update.

    plan: problem and windows.
    batch: examples in a minibatch.
    rate: learning rate of one example; an update adds the gradients of a batch.
    comm: communicator.
    threads: number of workers of each rank.
    """
    kernel, table, seen = plan.problem.kernel, plan.problem.params, 0
    all_rows = np.ones(len(table), np.bool_)
    window = -(-max(batch, plan.window) // batch) * batch  # a multiple of the batch
    for epoch in count():
        for first in range(0, plan.problem.examples, window):
            last = min(first + window, plan.problem.examples)
            examples = select_examples(kernel.data, first, last)
            problem = models.problem(kernel.model, examples, table)
            size = min(batch, last - first)
            steps = cyclades(
                problem,
                islice(orders(problem.examples, size, epoch), 1),
                Descent(lambda epoch: rate),
                comm=comm,
                timer=Timer(),
                deferred=all_rows,
                batch=size,
                threads=threads,
            )
            summary = curve(steps, lambda table: {"table": table}, finite=False).summary
            table = summary["table"]
            seen += last - first
            seconds = summary["update_seconds"] + summary["wait_seconds"]
            yield seen, table, seconds / summary["steps"]


def examples_to_target(
    plan: BatchSizePlan, batch: int, rate: float, comm: CountedComm, limit: float
) -> float:
    """Return the number of examples to the target; inf above the limit."""
    kernel = plan.problem.kernel
    steps = max(batch + plan.window, MAX_DECAY)
    # With a larger rate the factor that scales the weights by the L2 term would be 0.
    if rate * kernel.data.mu * steps > MAX_DECAY / 2:
        return np.inf
    for seen, table, _ in descent(plan, batch, rate, comm):
        objective = kernel.model.objective(table, kernel.data)
        if objective <= plan.goal:
            return seen
        trial_over = seen >= TRIAL_EPOCHS * plan.problem.examples
        if trial_over and objective > plan.first:
            break
        if seen >= limit or not np.isfinite(objective):
            break
    return np.inf


def search_rate(
    plan: BatchSizePlan, batch: int, rate: float, comm: CountedComm
) -> Fastest:
    """Search by factors of 2, from this rate, the rate with the fewest examples."""
    tried: dict[float, float] = {}

    def examples(rate: float) -> float:
        if rate not in tried:
            limit = min(
                plan.limit, MAX_EXAMPLES_RATIO * min(tried.values(), default=np.inf)
            )
            tried[rate] = examples_to_target(plan, batch, rate, comm, limit)
        return tried[rate]

    best = rate
    while examples(best) == np.inf and best > LOWEST * rate:
        best /= 2
    for factor in (0.5, 2.0):
        while examples(best * factor) < examples(best):
            best *= factor
    return Fastest(best, examples(best))


def bounds(
    plan: BatchSizePlan, batch: int, search: Fastest, comm: CountedComm
) -> list[float]:
    """Return the bounds of the batch size at the start, and along the fastest run."""
    bound = diversity(plan.problem.kernel.data, len(plan.problem.params))
    values = [bound(plan.problem.params)]
    for seen, table, _ in descent(plan, batch, search.rate, comm):
        if not seen <= search.examples < np.inf:
            break
        values.append(bound(table))
    return values


def step_seconds(
    plan: BatchSizePlan, batch: int, rate: float, comm: CountedComm, threads: int
) -> float:
    """Return the median seconds of an update by this number of workers."""
    wide = plan._replace(window=max(plan.window, plan.problem.examples // 16))
    windows = islice(descent(wide, batch, rate, comm, threads), TIMED_WINDOWS)
    return float(np.median([seconds for _, _, seconds in windows][1:]))
