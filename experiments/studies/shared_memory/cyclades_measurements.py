"""Measurements of cyclades.py: bits, conflicts, speeds, and largest stable steps.

Each measurement takes a communicator, a problem, its defaults and a seed, and yields
rows of one kind on rank 0.
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
    objective,
    run_alternately,
    seconds,
    settings,
    speedup,
)
from studies.shared_memory.sparse_flags import Defaults
from studies.shared_memory.sparse_strategies import Settings

BITS_EPOCHS = 2  # epochs before bits are compared
HOGWILD, CYCLADES = "hogwild", "cyclades"
STRATEGIES = [HOGWILD, CYCLADES]
RATE_RATIO = 1.25  # precision of the search for the largest rate, as a ratio
MAX_DOUBLINGS = 30  # doublings or halvings of a rate, at most


def bits(
    comm: CountedComm,
    problem: Problem,
    defaults: Defaults,
    seed: int,
    *,
    shares: Sequence[float],
    batches: Sequence[int],
    workers: Sequence[int],
) -> Iterator[Row]:
    """Compare the trained tables of several numbers of workers.

    The reference is serial, or one worker of CYCLADES where hubs are deferred to the
    end of a batch.

    Args:
        comm: ranks of one host.
        problem: problem.
        defaults: default values of the flags of the problem.
        seed: random seed.
        shares: rows in more than this share of the examples are hubs.
        batches: batch sizes.
        workers: numbers of workers.
    """
    for share, deferred in distinct_hubs(problem, shares):
        for batch in limit_batches(problem, batches):
            options = settings(defaults._replace(batch=batch), BITS_EPOCHS, seed)
            options = options._replace(hubs=share)
            first = (CYCLADES, 1) if deferred.any() else SERIAL
            cases = list(dict.fromkeys([first, *((CYCLADES, p) for p in workers)]))
            timings = run_alternately(comm, problem, options, cases, 1, BITS_EPOCHS)
            if comm.rank == 0:
                hashes = {case: digest(timings[case][0].table) for case in cases}
                yield {
                    "kind": "bits",
                    "batch": batch,
                    "hubs": share,
                    "deferred": int(deferred.sum()),
                    "workers": ",".join(map(str, workers)),
                    "sha256": hashes[first],
                    "equal": len(set(hashes.values())) == 1,
                }


def digest(table: np.ndarray | None) -> str:
    """Return the SHA-256 of a table's bits."""
    return hashlib.sha256(np.ascontiguousarray(table)).hexdigest()


def limit_batches(problem: Problem, batches: Sequence[int]) -> list[int]:
    """Return the batch sizes up to the number of examples, or else this number."""
    count = problem.examples
    return [batch for batch in batches if batch <= count] or [count]


def distinct_hubs(
    problem: Problem, shares: Sequence[float]
) -> Iterator[tuple[float, np.ndarray]]:
    """Yield shares and masks of the hubs, the rows in more than this share of examples.

    Shares with equal masks are yielded once.
    """
    counts = set()
    for share in shares:
        deferred = hubs(problem.kernel.data.edges, len(problem.params), share)
        # The hubs of a higher share are hubs of a lower one: equal counts, equal masks.
        if deferred.sum() not in counts:
            counts.add(deferred.sum())
            yield share, deferred


def sizes(
    comm: CountedComm,
    problem: Problem,
    defaults: Defaults,
    seed: int,
    *,
    shares: Sequence[float],
    batches: Sequence[int],
) -> Iterator[Row]:
    """Measure on one rank the components of the conflict graphs of batches."""
    edges = problem.kernel.data.edges
    for share, deferred in distinct_hubs(problem, shares) if comm.rank == 0 else ():
        for batch in limit_batches(problem, batches):
            sizes_by_block = component_sizes(edges, batch, deferred)
            shares_of_largest = [block[0] / block.sum() for block in sizes_by_block]
            yield {
                "kind": "sizes",
                "batch": batch,
                "hubs": share,
                "deferred": int(deferred.sum()),
                "components": float(np.mean([len(block) for block in sizes_by_block])),
                "mean_size": float(np.concatenate(sizes_by_block).mean()),
                "largest": float(np.mean(shares_of_largest)),
            }


def compare_speed(
    comm: CountedComm,
    problem: Problem,
    defaults: Defaults,
    seed: int,
    *,
    workers: Sequence[int],
    repeats: int,
    epochs: int,
) -> Iterator[Row]:
    """Time CYCLADES and HOGWILD! alternately; hubs are the problem's default."""
    cases = [(strategy, count) for count in workers for strategy in STRATEGIES]
    options = settings(defaults, epochs, seed)._replace(hubs=defaults.hubs)
    timings = run_alternately(comm, problem, options, cases, repeats, epochs)
    for strategy, count in cases if comm.rank == 0 else ():
        timings_of_case = timings[strategy, count]
        first = timings_of_case[0]
        yield {
            "kind": "race",
            "strategy": strategy,
            "workers": count,
            "batch": defaults.batch,
            "hubs": defaults.hubs,
            "updates_per_second": epochs * problem.examples / seconds(timings_of_case),
            "to_hogwild": speedup(timings[HOGWILD, count], timings_of_case),
            "planned": first.plan_seconds,
            "objective": objective(problem, first.table),
        }


def largest(
    comm: CountedComm,
    problem: Problem,
    defaults: Defaults,
    seed: int,
    *,
    most: int,
    late: Sequence[int],
    epochs: int,
) -> Iterator[Row]:
    """Search the largest rate at which the objective falls.

    The rate is searched for serial, for HOGWILD! and CYCLADES with `most` workers, and
    for HOGWILD! simulated with reads that are late by the numbers of updates in `late`.
    Each rate is tried for `epochs` epochs.
    """
    simulated = ((f"{LATE}{updates}", 1) for updates in late)
    parallel = ((strategy, most) for strategy in STRATEGIES)
    for case in (SERIAL, *parallel, *simulated):

        def falls(rate: float, case: Case = case) -> bool:
            constant = defaults._replace(lr=rate, decay=1.0)
            options = settings(constant, epochs, seed)._replace(hubs=defaults.hubs)
            return decreases(comm, problem, options, case, epochs)

        rate, tries = search(falls, defaults.lr)
        if comm.rank == 0:
            yield {
                "kind": "step",
                "strategy": case[0],
                "workers": case[1],
                "epochs": epochs,
                "tries": tries,
                "rate": rate,
            }


def decreases(
    comm: CountedComm, problem: Problem, options: Settings, case: Case, epochs: int
) -> bool:
    """Return whether the objective of a case falls; equal on all ranks."""
    try:  # on all ranks, so that no rank waits for one that raises
        problem.kernel.model.with_rate(problem.kernel.data, options.update.rate(1))
    except BadInput:  # the rate is too large for the L2 term
        return False
    with np.errstate(all="ignore"):  # diverging runs overflow
        timings = run_alternately(comm, problem, options, [case], 1, epochs)[case]
    falls = False
    if comm.rank == 0 and np.isfinite(timings[0].table).all():
        before = objective(problem, problem.params)
        falls = objective(problem, timings[0].table) < before
    return bool(broadcast_number(comm, float(falls)))


def search(falls: Callable[[float], bool], start: float) -> tuple[float, int]:
    """Return the largest rate for which `falls` is true, and the number of tries.

    A rate is doubled while `falls` is true, or halved until it is; then bisected
    on a logarithmic scale to a ratio of RATE_RATIO. Return 0 if it is true for no rate.
    """
    tries, rate, doubling = 1, start, falls(start)
    while tries < MAX_DOUBLINGS:
        next_rate = rate * 2 if doubling else rate / 2
        tries += 1
        if falls(next_rate) != doubling:
            low, high = sorted((rate, next_rate))
            break
        rate = next_rate
    else:
        return (rate if doubling else 0.0), tries
    while high / low > RATE_RATIO:
        middle = math.sqrt(low * high)
        tries += 1
        low, high = (middle, high) if falls(middle) else (low, middle)
    return low, tries
