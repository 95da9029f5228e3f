"""Measurements of hogwild.py: speed-ups by workers, and by the time of a gradient.

Each measurement yields rows of one kind, on rank 0.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from dml.metrics.alternate import alternate
from dml.runs.writers import Row
from dml.types import CountedComm, Problem
from dml.wire.memory.atomics import LINE, spin
from dml.wire.memory.structure import structure
from studies.server.runs import broadcast_number
from studies.shared_memory.hogwild_runs import (
    SERIAL,
    Case,
    objective,
    run_alternately,
    seconds,
    speedup,
)
from studies.shared_memory.sparse_strategies import Settings

TIMING_SECONDS = 0.1  # approximate seconds of a timing of one worker
GRADIENT_SECONDS = 1e-6  # approximate seconds of a gradient without delay
MIN_BLOCKS = 64  # blocks of a timing, at least, so that workers end together
READS = 200_000  # reads of one timing, so that the timer's own time is negligible


def compare_speed(
    comm: CountedComm,
    problem: Problem,
    options: Settings,
    cases: Sequence[Case],
    repeats: int,
    epochs: int,
) -> Iterator[Row]:
    """Time all cases alternately; count lost updates in a separate run.

    The arguments are those of `run_alternately`.
    """
    timings = run_alternately(comm, problem, options, [SERIAL, *cases], repeats, epochs)
    counting = options._replace(counting=True)
    counted = run_alternately(comm, problem, counting, cases, 1, epochs)
    if comm.rank:
        return
    sparsity = structure(problem.kernel.data.edges, len(problem.params))
    serial_objective = objective(problem, timings[SERIAL][0].table)
    for case, timings_of_case in timings.items():
        last_objective = objective(problem, timings_of_case[0].table)
        yield {
            "kind": "race",
            "strategy": case[0],
            "workers": case[1],
            "updates_per_second": epochs * sparsity.edges / seconds(timings_of_case),
            "speedup": speedup(timings[SERIAL], timings_of_case),
            "objective": last_objective,
            "to_serial": last_objective / serial_objective - 1,
            "lost_share": counted[case][0].lost_share if case in counted else 0.0,
            "omega": sparsity.omega,
            "delta": sparsity.delta,
            "rho": sparsity.rho,
        }


def sweep(
    comm: CountedComm,
    problem: Problem,
    options: Settings,
    cases: Sequence[Case],
    delays: Sequence[float],
    repeats: int,
) -> Iterator[Row]:
    """Time all cases alternately, with each delay of a gradient in microseconds.

    The number of examples falls with the delay, so that a timing takes about
    TIMING_SECONDS. The time of a gradient is measured by the updates of serial.
    """
    reads = broadcast_number(comm, reads_per_microsecond() if comm.rank == 0 else None)
    for delay in delays:
        updates = TIMING_SECONDS / (GRADIENT_SECONDS + delay * 1e-6)
        few = limit_examples(problem, math.ceil(updates))
        count = few.examples
        epochs = max(1, round(updates / count))
        batch = max(1, min(options.batch, count // MIN_BLOCKS))
        delayed = options._replace(batch=batch, delay=round(delay * reads))
        timings = run_alternately(comm, few, delayed, [SERIAL, *cases], repeats, epochs)
        for case in cases if comm.rank == 0 else ():
            yield {
                "kind": "delay",
                "delay_us": delay,
                "gradient_us": seconds(timings[SERIAL]) / (epochs * count) * 1e6,
                "strategy": case[0],
                "workers": case[1],
                "updates_per_second": epochs * count / seconds(timings[case]),
                "speedup": speedup(timings[SERIAL], timings[case]),
            }


def limit_examples(problem: Problem, most: int) -> Problem:
    """Return the problem of the first `most` examples; the data is not copied."""
    data = problem.kernel.data
    edges = data.edges._replace(starts=data.edges.starts[: most + 1])
    kernel = problem.kernel._replace(data=data._replace(edges=edges))
    return problem._replace(examples=len(edges.starts) - 1, kernel=kernel)


def reads_per_microsecond() -> float:
    """Measure how often a core reads a number in a microsecond."""
    numbers = np.zeros(LINE, np.int64)
    times = alternate({"spin": partial(spin, numbers, READS)}, 10)["spin"]
    return READS / min(times) / 1e6
