"""Measurements of cyclades.py: bits, conflicts, speeds, and largest stable steps.

Each takes a communicator, a problem, its default settings and a seed, and yields rows
of one kind on rank 0.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dml.runs.writers import Row
from dml.types import BadInput, CountedComm, Problem
from dml.wire.memory.conflicts import component_sizes, hubs
from studies.server.runs import broadcast_number
from studies.shared_memory.hogwild_runs import (
    LATE,
    SERIAL,
    Case,
    by_turns,
    objective,
    seconds,
    settings,
    speedup,
)
from studies.shared_memory.sparse_flags import Stated
from studies.shared_memory.sparse_strategies import Settings

CHECKED = 2  # epochs before bits are compared
WAYS = ["hogwild", "cyclades"]
NEAR = 1.25  # precision of the search for the largest rate, as a ratio
DOUBLINGS = 30  # doublings or halvings of a rate, at most


def bits(
    comm: CountedComm,
    problem: Problem,
    stated: Stated,
    seed: int,
    *,
    shares: Sequence[float],
    batches: Sequence[int],
    workers: Sequence[int],
) -> Iterator[Row]:
    """Compare the trained tables of several numbers of workers.

    The reference is serial, or one worker of CYCLADES where hubs are deferred to the
    end of a batch.
    """
    for share, deferred in distinct_hubs(problem, shares):
        for batch in fitting(problem, batches):
            how = settings(stated._replace(batch=batch), CHECKED, seed)
            how = how._replace(hubs=share)
            first = ("cyclades", 1) if deferred.any() else SERIAL
            cases = list(dict.fromkeys([first, *(("cyclades", p) for p in workers)]))
            turns = by_turns(comm, problem, how, cases, 1, CHECKED)
            if comm.rank == 0:
                hashes = {case: digest(turns[case][0].table) for case in cases}
                yield {
                    "kind": "bits",
                    "batch": batch,
                    "hubs": share,
                    "apart": int(deferred.sum()),
                    "workers": ",".join(map(str, workers)),
                    "sha256": hashes[first],
                    "equal": len(set(hashes.values())) == 1,
                }


def digest(table: np.ndarray | None) -> str:
    """Return the SHA-256 of a table's bits."""
    return hashlib.sha256(np.ascontiguousarray(table)).hexdigest()


def fitting(problem: Problem, batches: Sequence[int]) -> list[int]:
    """Return the batch sizes up to the number of examples, or this number."""
    count = problem.examples
    return [batch for batch in batches if batch <= count] or [count]


def distinct_hubs(
    problem: Problem, shares: Sequence[float]
) -> Iterator[tuple[float, np.ndarray]]:
    """Yield each share and a mask of its rows; no two masks are equal."""
    seen = set()
    for share in shares:
        deferred = hubs(problem.kernel.data.edges, len(problem.params), share)
        if (
            deferred.sum() not in seen
        ):  # the rows of a higher share are included in a lower one
            seen.add(deferred.sum())
            yield share, deferred


def sizes(
    comm: CountedComm,
    problem: Problem,
    stated: Stated,
    seed: int,
    *,
    shares: Sequence[float],
    batches: Sequence[int],
) -> Iterator[Row]:
    """Measure on one rank the components of the conflict graphs of batches."""
    edges = problem.kernel.data.edges
    for share, deferred in distinct_hubs(problem, shares) if comm.rank == 0 else ():
        for batch in fitting(problem, batches):
            blocks = component_sizes(edges, batch, deferred)
            yield {
                "kind": "sizes",
                "batch": batch,
                "hubs": share,
                "apart": int(deferred.sum()),
                "components": float(np.mean([len(block) for block in blocks])),
                "mean_size": float(np.concatenate(blocks).mean()),
                "largest": float(np.mean([block[0] / block.sum() for block in blocks])),
            }


def compare_speed(
    comm: CountedComm,
    problem: Problem,
    stated: Stated,
    seed: int,
    *,
    workers: Sequence[int],
    repeats: int,
    epochs: int,
) -> Iterator[Row]:
    """Time CYCLADES and HOGWILD! alternately; hubs are the problem's default."""
    cases = [(way, count) for count in workers for way in WAYS]
    how = settings(stated, epochs, seed)._replace(hubs=stated.hubs)
    timings = by_turns(comm, problem, how, cases, repeats, epochs)
    for way, count in cases if comm.rank == 0 else ():
        turns = timings[way, count]
        yield {
            "kind": "race",
            "way": way,
            "workers": count,
            "batch": stated.batch,
            "hubs": stated.hubs,
            "updates_per_second": epochs * problem.examples / seconds(turns),
            "to_hogwild": speedup(timings[WAYS[0], count], turns),
            "planned": turns[0].planned,
            "objective": objective(problem, turns[0].table),
        }


def largest(
    comm: CountedComm,
    problem: Problem,
    stated: Stated,
    seed: int,
    *,
    most: int,
    late: Sequence[int],
    epochs: int,
) -> Iterator[Row]:
    """Search the largest rate at which the objective falls.

    The rate is searched for serial, for both strategies with `most` workers, and for
    HOGWILD! simulated with late reads. Each rate is tried for some epochs.
    """
    cases = [SERIAL, *((way, most) for way in WAYS), *((f"{LATE}{n}", 1) for n in late)]
    for case in cases:

        def falls(rate: float, case: Case = case) -> bool:
            plain = stated._replace(lr=rate, decay=1.0)
            how = settings(plain, epochs, seed)._replace(hubs=stated.hubs)
            return decreases(comm, problem, how, case, epochs)

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


def decreases(
    comm: CountedComm, problem: Problem, how: Settings, case: Case, epochs: int
) -> bool:
    """Return whether the objective of a case falls."""
    try:  # on all ranks, so that no rank waits for one that raises
        problem.kernel.model.paced(problem.kernel.data, how.update.rate(1))
    except BadInput:  # the rate is too large for the norm
        return False
    with np.errstate(all="ignore"):  # diverging runs overflow
        turns = by_turns(comm, problem, how, [case], 1, epochs)[case]
    lower = 0.0
    if comm.rank == 0 and np.isfinite(turns[0].table).all():
        first, last = (objective(problem, t) for t in (problem.params, turns[0].table))
        lower = float(last < first)
    return bool(broadcast_number(comm, lower))


def search(falls: Callable[[float], bool], start: float) -> tuple[float, int]:
    """Return the largest rate for which `falls` is true, and the number of tries.

    A rate is doubled while `falls` is true, or halved until it is; then bisected
    on a logarithmic scale to a ratio of NEAR. Return 0 if it is true for no rate.
    """
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
