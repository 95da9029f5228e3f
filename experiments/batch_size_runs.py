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
from dml.models.sparse_logistic_edges import Documents
from dml.models.sparse_svm import RANGE
from dml.strategies.sparse.batched import batched
from dml.strategies.sparse.workers import Settings, Sparse, Workers
from dml.types import Edges

CLOCKED = 6  # windows, the first of which warms the caches
TRIED = 3  # epochs after which who is no better than at the start is given up
PATIENCE = 2.0  # times the fewest examples yet, after which a rate is given up
LOWEST = 2.0**-12  # of the rate that a search begins with


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
    plan: Plan, batch: int, rate: float, crew: Workers
) -> Iterator[tuple[int, np.ndarray, float]]:
    """Yield of window after window: the examples seen, the table, the seconds.

    An update is the sum of a batch's gradients, so the rate is that of one example.
    """
    problem, seen = plan.problem, 0
    table, everything = problem.start, np.ones(len(problem.start), np.bool_)
    window = -(-max(batch, plan.window) // batch) * batch
    for turn in count():
        for first in range(0, plan.examples, window):
            last = min(first + window, plan.examples)
            here = Sparse(problem.model, part(problem.data, first, last), table)
            settings = Settings(lambda _: rate, min(batch, last - first), turn)
            step = next(batched(here, settings, Timer(), crew=crew, apart=everything))
            table, seen = step.params(), seen + last - first
            yield seen, table, step.seconds["update"] + step.seconds["wait"]


def reached(plan: Plan, batch: int, rate: float, crew: Workers, limit: float) -> float:
    """Return how many examples it takes to the goal; inf: more than the limit."""
    model, data = plan.problem.model, plan.problem.data
    steps = max(batch + plan.window, RANGE)
    if rate * data.mu * steps > RANGE / 2:  # the norm's scale would be 0
        return np.inf
    for seen, table, _ in descent(plan, batch, rate, crew):
        objective = model.objective(table, data)
        if objective <= plan.goal:
            return seen
        lost = seen >= TRIED * plan.examples and objective > plan.first
        if seen >= limit or lost or not np.isfinite(objective):
            break
    return np.inf


def fastest(plan: Plan, batch: int, rate: float, crew: Workers) -> Fastest:
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


def bounds(plan: Plan, batch: int, found: Fastest, crew: Workers) -> list[float]:
    """Return the bound of the batch at the start, and along the fastest run."""
    bound = diversity(plan.problem.data, len(plan.problem.start))
    values = [bound(plan.problem.start)]
    for seen, table, _ in descent(plan, batch, found.rate, crew):
        if not seen <= found.examples < np.inf:
            break
        values.append(bound(table))
    return values


def step_seconds(plan: Plan, batch: int, rate: float, crew: Workers) -> float:
    """Return the median seconds of a step, by the crew."""
    wide = plan._replace(window=max(plan.window, plan.examples // 16))
    seen, took = 0, []
    for total, _, seconds in islice(descent(wide, batch, rate, crew), CLOCKED):
        took.append(seconds / -(-(total - seen) // batch))
        seen = total
    return float(np.median(took[1:]))
