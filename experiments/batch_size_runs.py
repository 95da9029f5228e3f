"""Minibatch descent to a goal: a plan, batch and rate in; examples and seconds out.

    examples  ▯▯▯▯ ▯▯▯▯ ▯▯▯▯ ▯▯▯▯      one after another in the order drawn, and again
    windows   └──┘ at each end the objective is compared with the goal

A window is an epoch of the strategy, on examples of its own, from the last one's table.
"""

from collections.abc import Iterator
from itertools import count, islice
from typing import NamedTuple

import numpy as np
from batch_size_data import Plan, diversity

from dml.metrics.timer import Timer
from dml.models import descent as models
from dml.models.sparse_logistic_edges import Documents
from dml.models.sparse_svm import RANGE
from dml.strategies.shared.cyclades import cyclades
from dml.strategies.shared.workers import Descent, orders
from dml.types import CountedComm, Edges

CLOCKED = 6  # windows, the first of which warms the caches
TRIED = 3  # epochs after which who is no better than at the start is given up
PATIENCE = 2.0  # times the fewest examples yet, after which a rate is given up
LOWEST = 2.0**-12  # of the rate that a search begins with


class Crew(NamedTuple):
    """The workers of a step: the threads of every rank."""

    comm: CountedComm
    threads: int = 1


class Fastest(NamedTuple):
    """The rate that took the fewest examples to the goal."""

    rate: float
    examples: float  # inf: no rate reached it


def part(data: Documents, first: int, last: int) -> Documents:
    """Return examples first … last - 1, as they lie in memory."""
    starts = data.edges.starts
    low, high = starts[first], starts[last]
    edges = Edges(starts[first : last + 1] - low, data.edges.rows[low:high])
    return data._replace(
        edges=edges, values=data.values[low:high], labels=data.labels[first:last]
    )


def descent(
    plan: Plan, batch: int, rate: float, crew: Crew
) -> Iterator[tuple[int, np.ndarray, float]]:
    """Yield of window after window: the examples seen, the table, the seconds.

    An update is the sum of a batch's gradients, so the rate is that of one example.
    """
    kernel, table, seen = plan.problem.kernel, plan.problem.params, 0
    everything = np.ones(len(table), np.bool_)
    window = -(-max(batch, plan.window) // batch) * batch
    for turn in count():
        for first in range(0, plan.examples, window):
            last = min(first + window, plan.examples)
            here = part(kernel.data, first, last)
            problem = models.problem(kernel.model, here, table)
            size = min(batch, last - first)
            (step,) = cyclades(
                problem,
                islice(orders(problem.examples, size, turn), 1),
                Descent(lambda epoch: rate),
                comm=crew.comm,
                timer=Timer(),
                apart=everything,
                batch=size,
                threads=crew.threads,
            )
            table, seen = step.params(), seen + last - first
            yield seen, table, step.seconds["update"] + step.seconds["wait"]


def reached(plan: Plan, batch: int, rate: float, crew: Crew, limit: float) -> float:
    """Return how many examples it takes to the goal; inf: more than the limit."""
    kernel = plan.problem.kernel
    steps = max(batch + plan.window, RANGE)
    if rate * kernel.data.mu * steps > RANGE / 2:  # the norm's scale would be 0
        return np.inf
    for seen, table, _ in descent(plan, batch, rate, crew):
        objective = kernel.model.objective(table, kernel.data)
        if objective <= plan.goal:
            return seen
        lost = seen >= TRIED * plan.examples and objective > plan.first
        if seen >= limit or lost or not np.isfinite(objective):
            break
    return np.inf


def fastest(plan: Plan, batch: int, rate: float, crew: Crew) -> Fastest:
    """Climb from this rate by factors of 2 to the one with the fewest examples."""
    tried: dict[float, float] = {}

    def examples(rate: float) -> float:
        if rate not in tried:
            limit = min(plan.limit, PATIENCE * min(tried.values(), default=np.inf))
            tried[rate] = reached(plan, batch, rate, crew, limit)
        return tried[rate]

    best = rate
    while examples(best) == np.inf and best > LOWEST * rate:
        best /= 2
    for factor in (0.5, 2.0):
        while examples(best * factor) < examples(best):
            best *= factor
    return Fastest(best, examples(best))


def bounds(plan: Plan, batch: int, found: Fastest, crew: Crew) -> list[float]:
    """Return the bound of the batch at the start, and along the fastest run."""
    bound = diversity(plan.problem.kernel.data, len(plan.problem.params))
    values = [bound(plan.problem.params)]
    for seen, table, _ in descent(plan, batch, found.rate, crew):
        if not seen <= found.examples < np.inf:
            break
        values.append(bound(table))
    return values


def step_seconds(plan: Plan, batch: int, rate: float, crew: Crew) -> float:
    """Return the median seconds of a step, by the crew."""
    wide = plan._replace(window=max(plan.window, plan.examples // 16))
    seen, took = 0, []
    for total, _, seconds in islice(descent(wide, batch, rate, crew), CLOCKED):
        took.append(seconds / -(-(total - seen) // batch))
        seen = total
    return float(np.median(took[1:]))
