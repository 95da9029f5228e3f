"""The largest step with which the objective falls, by way: rates are tried.

Doubled while it falls, halved until it does; then between the two, to a factor of 1.25.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
from cyclades_parts import WAYS
from hogwild_runs import SERIAL, Case, by_turns, settings
from server_runs import agreed
from sparse_flags import Stated

from dml.metrics.writers import Row
from dml.strategies.sparse.workers import Sparse
from dml.types import BadInput, CountedComm

NEAR = 1.25  # of the largest step to one that is too large
DOUBLINGS = 30  # or halvings, at most


def largest(
    most: int,
    epochs: int,
    comm: CountedComm,
    problem: Sparse,
    stated: Stated,
    seed: int,
) -> Iterator[Row]:
    """Search for each way with the most workers, and for serial; a row each."""
    for case in (SERIAL, *((way, most) for way in WAYS)):

        def falls(rate: float, case: Case = case) -> bool:
            plain = stated._replace(lr=rate, decay=1.0)
            return fallen(comm, problem, plain, seed, case, epochs)

        rate, tries = search(falls, stated.lr)
        if comm.rank == 0:
            yield {
                "kind": "step",
                "way": case[0],
                "workers": case[1],
                "epochs": epochs,
                "tries": tries,
                "rate": rate,
            }


def search(falls: Callable[[float], bool], start: float) -> tuple[float, int]:
    """Return the largest rate that falls, and how many were tried; 0: none does."""
    tries, rate, up = 1, start, falls(start)
    while tries < DOUBLINGS:
        beyond = rate * 2 if up else rate / 2
        tries += 1
        if falls(beyond) != up:
            low, high = sorted((rate, beyond))
            break
        rate = beyond
    else:
        return (rate if up else 0.0), tries
    while high / low > NEAR:
        middle = math.sqrt(low * high)
        tries += 1
        low, high = (middle, high) if falls(middle) else (low, middle)
    return low, tries


def fallen(
    comm: CountedComm,
    problem: Sparse,
    stated: Stated,
    seed: int,
    case: Case,
    epochs: int,
) -> bool:
    """Say whether the objective is below the start's after so many epochs."""
    how = settings(stated, epochs, seed)
    try:  # on all ranks: where one alone is refused, others would wait for it
        problem.model.paced(problem.data, stated.lr)
    except BadInput:  # a norm that would leave nothing of the weights
        return False
    with np.errstate(all="ignore"):  # what diverges overflows
        turns = by_turns(comm, problem, how, [case], (1, epochs), stated.hubs)
    found = 0.0
    if comm.rank == 0:
        table = turns[case][0].table
        objective = problem.model.objective
        found = np.isfinite(table).all() and (
            objective(table, problem.data) < objective(problem.start, problem.data)
        )
    return bool(agreed(comm, float(found)))
