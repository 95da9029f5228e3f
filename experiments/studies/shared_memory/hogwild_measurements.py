"""Measurements of hogwild.py: speed-ups by worker, and by the time of a gradient.

Both yield rows of one kind, on rank 0.
"""

import math
import time
from collections.abc import Iterator, Sequence

import numpy as np

from dml.runs.writers import Row
from dml.types import CountedComm, Problem
from dml.wire.memory.atomics import LINE, spin
from dml.wire.memory.structure import structure
from studies.server.runs import broadcast_number
from studies.shared_memory.hogwild_runs import (
    SERIAL,
    Case,
    by_turns,
    objective,
    seconds,
    speedup,
)
from studies.shared_memory.sparse_strategies import Settings

TURN = 0.1  # approximate seconds of a timing of one worker
GRADIENT = 1e-6  # approximate seconds of a gradient without delay
BLOCKS = 64  # blocks of a timing, at least, so that workers end together
READS = 200_000  # reads of one timing, so that the timer's own time is negligible


def compare_speed(
    comm: CountedComm,
    problem: Problem,
    how: Settings,
    cases: Sequence[Case],
    repeats: int,
    epochs: int,
) -> Iterator[Row]:
    """Time all cases alternately; count lost updates in a separate run.

    The arguments are those of `by_turns`.
    """
    timed = by_turns(comm, problem, how, [SERIAL, *cases], repeats, epochs)
    counting = how._replace(counting=True)
    counted = by_turns(comm, problem, counting, cases, 1, epochs)
    if comm.rank:
        return
    facts = structure(problem.kernel.data.edges, len(problem.params))
    least = objective(problem, timed[SERIAL][0].table)
    for case, turns in timed.items():
        reached = objective(problem, turns[0].table)
        yield {
            "kind": "race",
            "way": case[0],
            "workers": case[1],
            "updates_per_second": epochs * facts.edges / seconds(turns),
            "speedup": speedup(timed[SERIAL], turns),
            "objective": reached,
            "to_serial": reached / least - 1,
            "lost_share": counted[case][0].lost_share if case in counted else 0.0,
            "omega": facts.omega,
            "delta": facts.delta,
            "rho": facts.rho,
        }


def sweep(
    comm: CountedComm,
    problem: Problem,
    how: Settings,
    cases: Sequence[Case],
    delays: Sequence[float],
    repeats: int,
) -> Iterator[Row]:
    """Time all cases alternately with each delay of a gradient, in microseconds.

    The longer the delay, the fewer examples. The time of a gradient is that of an
    update of serial.
    """
    reads = broadcast_number(comm, reads_per_microsecond() if comm.rank == 0 else None)
    for delay in delays:
        takes = GRADIENT + delay * 1e-6
        few = fewer(problem, math.ceil(TURN / takes))
        count = few.examples
        epochs = max(1, round(TURN / takes / count))
        batch = max(1, min(how.batch, count // BLOCKS))
        slow = how._replace(batch=batch, delay=round(delay * reads))
        turns = by_turns(comm, few, slow, [SERIAL, *cases], repeats, epochs)
        for case in cases if comm.rank == 0 else ():
            yield {
                "kind": "delay",
                "delay_us": delay,
                "gradient_us": seconds(turns[SERIAL]) / (epochs * count) * 1e6,
                "way": case[0],
                "workers": case[1],
                "updates_per_second": epochs * count / seconds(turns[case]),
                "speedup": speedup(turns[SERIAL], turns[case]),
            }


def fewer(problem: Problem, most: int) -> Problem:
    """Return the problem of the first examples; the data is not copied."""
    data = problem.kernel.data
    edges = data.edges._replace(starts=data.edges.starts[: most + 1])
    kernel = problem.kernel._replace(data=data._replace(edges=edges))
    return problem._replace(examples=len(edges.starts) - 1, kernel=kernel)


def reads_per_microsecond() -> float:
    """Measure how often a core reads a number in a microsecond."""
    words, took = np.zeros(LINE, np.int64), []
    for _ in range(10):
        begun = time.perf_counter()
        spin(words, READS)
        took.append(time.perf_counter() - begun)
    return READS / min(took) / 1e6
