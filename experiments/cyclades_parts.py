"""What cyclades.py measures of a problem: bits, conflicts, and updates a second.

Each yields rows of its kind; where several ranks work, rank 0 alone.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from hogwild_runs import SERIAL, by_turns, seconds, settings, speedup
from sparse_flags import Stated

from dml.metrics.writers import Row
from dml.types import CountedComm, Problem
from dml.wire.memory.conflicts import component_sizes, hubs

CHECKED = 2  # epochs after which bits are compared
WAYS = ["hogwild", "cyclades"]


def bits(
    shares: Sequence[float],
    counts: tuple[Sequence[int], Sequence[int]],
    comm: CountedComm,
    problem: Problem,
    stated: Stated,
    seed: int,
) -> Iterator[Row]:
    """Compare the tables of so many workers, for each batch and share of hubs.

    Serial is the reference; but where rows are apart, one worker that leaves them so.
    """
    batches, workers = counts
    for share, apart in marked(problem, shares):
        for batch in fitting(problem, batches):
            how = settings(stated._replace(batch=batch), CHECKED, seed)
            how = how._replace(hubs=share)
            first = ("cyclades", 1) if apart.any() else SERIAL
            cases = list(dict.fromkeys([first, *(("cyclades", p) for p in workers)]))
            turns = by_turns(comm, problem, how, cases, (1, CHECKED))
            if comm.rank == 0:
                found = {case: digest(turns[case][0].table) for case in cases}
                yield {
                    "kind": "bits",
                    "batch": batch,
                    "hubs": share,
                    "apart": int(apart.sum()),
                    "workers": ",".join(map(str, workers)),
                    "sha256": found[first],
                    "equal": len(set(found.values())) == 1,
                }


def objective(problem: Problem, table: np.ndarray | None) -> float:
    """Return the objective of a table."""
    return problem.kernel.model.objective(table, problem.kernel.data)


def digest(table: np.ndarray | None) -> str:
    """Return the SHA-256 of a table's bits."""
    return hashlib.sha256(np.ascontiguousarray(table)).hexdigest()


def fitting(problem: Problem, batches: Sequence[int]) -> list[int]:
    """Return the batches that there are examples for; all examples, where none is."""
    count = problem.examples
    return [batch for batch in batches if batch <= count] or [count]


def marked(
    problem: Problem, shares: Sequence[float]
) -> Iterator[tuple[float, np.ndarray]]:
    """Yield each share and its rows apart, but not the same rows twice."""
    seen = set()
    for share in shares:
        apart = hubs(problem.kernel.data.edges, len(problem.params), share)
        if apart.sum() not in seen:  # of two shares the lower one marks more
            seen.add(apart.sum())
            yield share, apart


def sizes(
    shares: Sequence[float],
    batches: Sequence[int],
    comm: CountedComm,
    problem: Problem,
    *_: Any,
) -> Iterator[Row]:
    """Count on one rank how conflicts connect the examples of a batch."""
    edges = problem.kernel.data.edges
    for share, apart in marked(problem, shares) if comm.rank == 0 else ():
        for batch in fitting(problem, batches):
            blocks = component_sizes(edges, batch, apart)
            yield {
                "kind": "sizes",
                "batch": batch,
                "hubs": share,
                "apart": int(apart.sum()),
                "components": float(np.mean([len(block) for block in blocks])),
                "mean_size": float(np.concatenate(blocks).mean()),
                "largest": float(np.mean([block[0] / block.sum() for block in blocks])),
            }


def races(
    workers: Sequence[int],
    turns: tuple[int, int],
    comm: CountedComm,
    problem: Problem,
    stated: Stated,
    seed: int,
) -> Iterator[Row]:
    """Time CYCLADES beside HOGWILD! by turns, with the problem's own hubs apart."""
    cases = [(way, count) for count in workers for way in WAYS]
    how = settings(stated, turns[1], seed)._replace(hubs=stated.hubs)
    found = by_turns(comm, problem, how, cases, turns)
    updates = turns[1] * problem.examples
    for way, count in cases if comm.rank == 0 else ():
        mine, other = found[way, count], found[WAYS[0], count]
        yield {
            "kind": "race",
            "way": way,
            "workers": count,
            "batch": stated.batch,
            "hubs": stated.hubs,
            "updates_per_second": updates / seconds(mine),
            "to_hogwild": speedup(other, mine),
            "planned": mine[0].planned,
            "objective": objective(problem, mine[0].table),
        }
