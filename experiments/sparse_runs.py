"""A run of training edge by edge: loads once a host, says how sparse it is, trains.

A Task in; rows, a summary, the table and its figures in the run folder out.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import flags
import numpy as np
import sparse_flags
import writing
from sparse_report import connected, ends, gap, progress, speeds
from sparse_ways import UPDATES, Setup

from dml.metrics import figures, writers
from dml.metrics.timer import Timer
from dml.strategies.sparse.workers import Sparse, workers
from dml.train import train
from dml.types import CountedComm, Edges, SparseModel
from dml.wire.memory.conflicts import component_sizes, hubs
from dml.wire.memory.shared import place
from dml.wire.memory.structure import lines, structure
from dml.wire.messages import first_of_all

BATCHES = 16, 64, 256, 1024  # whose components are shown
SOME = 1 << 16  # edges, of which they are
Measures = Mapping[str, Any]


class Extras(NamedTuple):
    """What only the rank that writes needs."""

    evaluate: Callable[[np.ndarray], Measures]  # on what is held out
    # the table of the least objective, where it can be found
    optimum: Callable[[Sparse], np.ndarray] | None
    save: Callable[[Path, np.ndarray], Measures]  # and draw; says what is to be seen


class Task(NamedTuple):
    """A problem that is loaded when it is asked for."""

    model: SparseModel
    load: Callable[[], tuple[Any, np.ndarray, Extras]]  # data, start
    stated: sparse_flags.Stated


def save(path: Path, table: np.ndarray) -> Measures:
    """Write the table, and draw nothing."""
    np.save(path / "table.npy", table)
    return {}


def loaded(comm: CountedComm, task: Task) -> tuple[Sparse, list[Extras]]:
    """Load on one rank; its data is shared, what else it has stays there."""
    extras: list[Extras] = []

    def load() -> tuple[Any, np.ndarray]:
        data, start, more = task.load()
        extras.append(more)
        return data, start

    return Sparse(task.model, *place(comm, load)), extras


def told(problem: Sparse, stated: sparse_flags.Stated) -> dict[str, float]:
    """Say and return how sparse a problem is, and how conflicts connect its batches."""
    edges, rows = problem.data.edges, len(problem.start)
    found, apart = structure(edges, rows), hubs(edges, rows, stated.hubs)
    # they lie in a drawn order: the first are as good as any
    count = min(len(edges.starts) - 1, SOME)
    some = Edges(edges.starts[: count + 1], edges.rows[: edges.starts[count]])
    largest = {
        batch: mean_share(component_sizes(some, batch, apart))
        for batch in BATCHES
        if batch <= count
    }
    sys.stdout.write("\n".join([*lines(found), connected(largest, apart)]) + "\n")
    return found._asdict() | {f"component_{b}": share for b, share in largest.items()}


def mean_share(blocks: Sequence[np.ndarray]) -> float:
    """Return the share of a block that its largest component has, on average."""
    return float(np.mean([sizes[0] / sizes.sum() for sizes in blocks]))


def ran(
    comm: CountedComm,
    task: Task,
    values: flags.FlagValues,
    path: Path,
    peers: Callable[[Sparse, sparse_flags.Stated], Measures] | None = None,
) -> dict[str, Any]:
    """Train as the flags say, and let peers do the same; return the summary."""
    begun = time.perf_counter()
    stated = sparse_flags.filled(values, task.stated)
    problem, extras = loaded(comm, task)
    settings = sparse_flags.settings(values, stated)
    # who has nothing to do sleeps: a core that waits is one that another needs
    facts = first_of_all(comm, lambda: {} if comm.rank else told(problem, stated))

    def evaluate(collect: Callable[[], np.ndarray | None]) -> Measures:
        table = collect()
        if table is None:
            return {}
        tables[:] = [table]
        objective = task.model.objective(table, problem.data)
        return {"objective": objective, **extras[0].evaluate(table)}

    tables: list[np.ndarray] = []
    with (
        workers(comm, values.threads) as crew,
        writing.first(
            path,
            values,
            comm,
            writers.console(stated.epochs, unit="epoch", says=progress, ends=ends),
            figures.chart(path / "objective", "step", "objective"),
        ) as writer,
    ):
        setup = Setup(problem, settings, Timer(), crew, stated.hubs)
        steps = islice(UPDATES[values.updates](setup), stated.epochs)
        summary = train(steps, evaluate, writer, evaluate_every=1)
        summary |= {"workers": crew.count, **facts}

        def conclude() -> None:
            if comm.rank:
                return
            summary.update(speeds(summary), **extras[0].save(path, tables[-1]))
            if values.reference and extras[0].optimum:
                least = task.model.objective(extras[0].optimum(problem), problem.data)
                summary.update(gap(summary["objective"], least))
            if peers:
                summary.update(peers(problem, stated))
            summary["total_seconds"] = time.perf_counter() - begun
            writer.summary(summary)

        first_of_all(comm, conclude)
    return summary
