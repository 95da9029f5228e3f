"""The largest step with which the objective falls, by way: rates are tried.

Doubled while it falls, halved until it does; then between the two, to a factor of 1.25.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np
from cyclades_parts import WAYS
from hogwild_runs import SERIAL, Case, by_turns, settings
from server_runs import agreed
from sparse_flags import Stated

from dml.metrics.timer import Timer
from dml.metrics.writers import Row
from dml.sim.laws import law
from dml.strategies.sparse.delayed import delayed
from dml.strategies.sparse.workers import Settings, Sparse
from dml.types import BadInput, CountedComm

Train = Callable[[Settings, int], np.ndarray | None]  # so many epochs; rank 0's table
NEAR = 1.25  # of the largest step to one that is too large
DOUBLINGS = 30  # or halvings, at most


def largest(
    most: int,
    tried: tuple[Sequence[int], int],
    comm: CountedComm,
    problem: Sparse,
    stated: Stated,
    seed: int,
) -> Iterator[Row]:
    """Search for serial, for each way with the most workers and with late reads.

    What is tried: how late reads are, and for how many epochs a rate is.
    """
    late, epochs = tried
    ways: dict[str, tuple[int, Train]] = {
        way: (count, partial(raced, comm, problem, (way, count), stated.hubs))
        for way, count in (SERIAL, *((way, most) for way in WAYS))
    }
    for delay in late:
        ways[f"late {delay}"] = 1, partial(simulated, comm, problem, delay)
    for way, (count, train) in ways.items():

        def falls(rate: float, train: Train = train) -> bool:
            plain = stated._replace(lr=rate, decay=1.0)
            how = settings(plain, epochs, seed)
            return fallen(comm, problem, partial(train, how, epochs), rate)

        rate, tries = search(falls, stated.lr)
        if comm.rank == 0:
            yield {
                "kind": "step",
                "way": way,
                "workers": count,
                "epochs": epochs,
                "tries": tries,
                "rate": rate,
            }


def raced(
    comm: CountedComm,
    problem: Sparse,
    case: Case,
    hubs: float,
    how: Settings,
    epochs: int,
) -> np.ndarray | None:
    """Return the table of a way after so many epochs, on rank 0."""
    turns = by_turns(comm, problem, how, [case], (1, epochs), hubs)[case]
    return turns[0].table if turns else None


def simulated(
    comm: CountedComm, problem: Sparse, delay: int, how: Settings, epochs: int
) -> np.ndarray | None:
    """Return it of HOGWILD! whose reads are so many updates late; rank 0 runs it."""
    if comm.rank:
        return None
    late = law(f"constant:{delay}")
    steps = delayed(problem, how, Timer(), law=late, most=delay)
    *_, last = islice(steps, epochs)
    return last.params


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
    train: Callable[[], np.ndarray | None],
    rate: float,
) -> bool:
    """Say whether the objective of the table at the end is below the start's."""
    try:  # on all ranks: where one alone is refused, others would wait for it
        problem.model.paced(problem.data, rate)
    except BadInput:  # a norm that would leave nothing of the weights
        return False
    with np.errstate(all="ignore"):  # what diverges overflows
        table = train()
    found = 0.0
    if table is not None and np.isfinite(table).all():
        before, after = (
            problem.model.objective(one, problem.data) for one in (problem.start, table)
        )
        found = float(after < before)
    return bool(agreed(comm, found))
