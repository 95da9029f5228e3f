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
from studies.server.runs import agreed
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
from studies.shared_memory.sparse_ways import Settings

CHECKED = 2  # epochs after which bits are compared
WAYS = ["hogwild", "cyclades"]
NEAR = 1.25  # the ratio of a step that is too large to the largest step, at most
DOUBLINGS = 30  # most doublings or halvings of a rate


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
    """Compare the tables of numbers of workers, for each batch and share of hubs.

    The reference is serial, or one worker of CYCLADES where rows wait for a batch's
    end.
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
    """Return the batches of at most all examples; if there is none, all examples."""
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
        ):  # a lower share includes the rows of a higher one
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
    """Count on one rank how conflicts connect the examples of a batch."""
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


def races(
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
    """Search the largest step after which the objective is below the start's.

    It is searched for serial, for both strategies with `most` workers, and for
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
    """Return whether a case ends below the objective of the start value."""
    try:  # on all ranks: if one alone refused the rate, the others would wait for it
        problem.kernel.model.paced(problem.kernel.data, how.update.rate(1))
    except BadInput:  # a norm that would leave nothing of the weights
        return False
    with np.errstate(all="ignore"):  # what diverges overflows
        turns = by_turns(comm, problem, how, [case], 1, epochs)[case]
    lower = 0.0
    if comm.rank == 0 and np.isfinite(turns[0].table).all():
        first, last = (objective(problem, t) for t in (problem.params, turns[0].table))
        lower = float(last < first)
    return bool(agreed(comm, lower))


def search(falls: Callable[[float], bool], start: float) -> tuple[float, int]:
    """Return the largest rate for which `falls` is true, and the number of tries.

    A rate is doubled while it is true, or halved until it is; then the rates between
    are halved on a logarithmic scale, to a ratio of NEAR. 0: it is true of no rate.
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
