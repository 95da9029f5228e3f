"""The largest step with which the objective falls, by way: rates are tried.

Doubled while it falls, halved until it does; then between the two, to a factor of 1.25.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np
from cyclades_parts import WAYS, objective
from hogwild_runs import SERIAL, Case, by_turns, settings
from server_runs import agreed
from sparse_flags import Stated
from sparse_ways import Settings

from dml.metrics.timer import Timer
from dml.metrics.writers import Row
from dml.sim.laws import law
from dml.strategies.shared.delayed import delayed
from dml.strategies.shared.workers import orders
from dml.types import BadInput, CountedComm, Problem

Train = Callable[[Settings, int], np.ndarray | None]  # so many epochs; rank 0's table
NEAR = 1.25  # of the largest step to one that is too large
DOUBLINGS = 30  # or halvings, at most


def largest(
    most: int,
    tried: tuple[Sequence[int], int],
    comm: CountedComm,
    problem: Problem,
    stated: Stated,
    seed: int,
) -> Iterator[Row]:
    """Search for serial, for each way with the most workers and with late reads.

    What is tried: how late reads are, and for how many epochs a rate is.
    """
    late, epochs = tried
    ways: dict[str, tuple[int, Train]] = {
        way: (count, partial(raced, comm, problem, (way, count)))
        for way, count in (SERIAL, *((way, most) for way in WAYS))
    }
    for delay in late:
        ways[f"late {delay}"] = 1, partial(simulated, comm, problem, delay)
    for way, (count, train) in ways.items():

        def falls(rate: float, train: Train = train) -> bool:
            plain = stated._replace(lr=rate, decay=1.0)
            how = settings(plain, epochs, seed)._replace(hubs=stated.hubs)
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
    problem: Problem,
    case: Case,
    how: Settings,
    epochs: int,
) -> np.ndarray | None:
    """Return the table of a way after so many epochs, on rank 0."""
    turns = by_turns(comm, problem, how, [case], (1, epochs))[case]
    return turns[0].table if turns else None


def simulated(
    comm: CountedComm, problem: Problem, delay: int, how: Settings, epochs: int
) -> np.ndarray | None:
    """Return it of HOGWILD! whose reads are so many updates late; rank 0 runs it."""
    if comm.rank:
        return None
    steps = delayed(
        problem,
        islice(orders(problem.examples, how.batch, how.seed), epochs),
        how.update,
        comm=comm,
        timer=Timer(),
        law=law(f"constant:{delay}"),
        seed=how.seed,
        most=delay,
    )
    *_, last = steps
    return last.params()


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
    problem: Problem,
    train: Callable[[], np.ndarray | None],
    rate: float,
) -> bool:
    """Say whether the objective of the table at the end is below the start's."""
    try:  # on all ranks: where one alone is refused, others would wait for it
        problem.kernel.model.paced(problem.kernel.data, rate)
    except BadInput:  # a norm that would leave nothing of the weights
        return False
    with np.errstate(all="ignore"):  # what diverges overflows
        table = train()
    found = 0.0
    if table is not None and np.isfinite(table).all():
        before, after = (objective(problem, one) for one in (problem.params, table))
        found = float(after < before)
    return bool(agreed(comm, found))
