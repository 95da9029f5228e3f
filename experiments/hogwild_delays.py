"""Gradients that take longer: the same ways by turns, delay after delay.

A problem, delays and cases in; rows out: how long a gradient took, and the speed-ups.
"""

import math
import time
from collections.abc import Iterator, Sequence

import numpy as np
from hogwild_runs import SERIAL, Case, by_turns, seconds, speedup
from server_runs import agreed
from sparse_ways import Settings

from dml.metrics.writers import Row
from dml.types import CountedComm, Problem
from dml.wire.memory.atomics import LINE, idle

TURN = 0.1  # seconds of one worker, about
GRADIENT = 1e-6  # seconds, about, of one that nothing delays
BLOCKS = (
    64  # or more, in a turn: workers take them by turns, and all should end at once
)
LOOKS = 200_000  # to be timed at once: longer than a timer's own time


def sweep(
    comm: CountedComm,
    problem: Problem,
    how: Settings,
    cases: Sequence[Case],
    delays: Sequence[float],
    repeats: int,
) -> Iterator[Row]:
    """Race each delay, on fewer examples the longer it is; rank 0 yields the rows."""
    looks = agreed(comm, calibrated() if comm.rank == 0 else None)
    for delay in delays:
        takes = GRADIENT + delay * 1e-6
        few = fewer(problem, math.ceil(TURN / takes))
        count = few.examples
        epochs = max(1, round(TURN / takes / count))
        slow = how._replace(
            batch=max(1, min(how.batch, count // BLOCKS)), delay=round(delay * looks)
        )
        turns = by_turns(comm, few, slow, [SERIAL, *cases], (repeats, epochs))
        if comm.rank == 0:
            yield from rows(turns, cases, delay, epochs * count)


def rows(turns: dict, cases: Sequence[Case], delay: float, updates: int) -> list[Row]:
    """Return a row a case; what a gradient takes is what a serial update does."""
    serial = turns[SERIAL]
    return [
        {
            "kind": "delay",
            "delay_us": delay,
            "gradient_us": seconds(serial) / updates * 1e6,
            "way": case[0],
            "workers": case[1],
            "updates_per_second": updates / seconds(turns[case]),
            "speedup": speedup(serial, turns[case]),
        }
        for case in cases
    ]


def fewer(problem: Problem, most: int) -> Problem:
    """Return the problem of the first examples; its data keep their place."""
    data = problem.kernel.data
    edges = data.edges._replace(starts=data.edges.starts[: most + 1])
    kernel = problem.kernel._replace(data=data._replace(edges=edges))
    return problem._replace(examples=len(edges.starts) - 1, kernel=kernel)


def calibrated() -> float:
    """Return the looks at a number that a core has in a microsecond."""
    numbers, took = np.zeros(LINE, np.int64), []
    for _ in range(10):
        begun = time.perf_counter()
        idle(numbers, LOOKS)
        took.append(time.perf_counter() - begun)
    return LOOKS / min(took) / 1e6
