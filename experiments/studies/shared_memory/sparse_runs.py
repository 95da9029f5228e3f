"""A run of training in shared memory: load once a host, measure sparsity, train.

A Task is trained; rows, summary, table and figures are written to the run folder.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from lab import flags, writing

from dml.figures import style as figures
from dml.metrics.timer import Timer
from dml.models.sparse import problem as descent
from dml.runs import folder as runs
from dml.runs import writers
from dml.train import train
from dml.types import CountedComm, Edges, Problem, SparseModel
from dml.wire.comm import Metered, first_of_all
from dml.wire.comm.mpi import world
from dml.wire.memory.conflicts import component_sizes, hubs
from dml.wire.memory.shared import load_shared
from dml.wire.memory.structure import lines, structure
from studies.shared_memory import sparse_flags
from studies.shared_memory.sparse_report import (
    connected,
    ends,
    gap,
    progress,
    sentence,
    speeds,
)
from studies.shared_memory.sparse_strategies import begin

BATCHES = 16, 64, 256, 1024  # batch sizes whose components are printed
SOME = 1 << 16  # edges in these batches, at most
Measures = Mapping[str, Any]


class Extras(NamedTuple):
    """Functions of the rank that writes.

    Attributes:
      evaluate: table -> measures on held-out examples.
      optimum: problem -> the table of the least objective; None if it takes too long.
      save: (folder, table) -> measures; writes and draws the table.
    """

    evaluate: Callable[[np.ndarray], Measures]
    optimum: Callable[[Problem], np.ndarray] | None
    save: Callable[[Path, np.ndarray], Measures]


class Task(NamedTuple):
    """A problem before its data is loaded.

    Attributes:
      load: () -> the data of the model, the start value, and the Extras.
      stated: Default values of the flags.
    """

    model: SparseModel
    load: Callable[[], tuple[Any, np.ndarray, Extras]]
    stated: sparse_flags.Stated


def save(path: Path, table: np.ndarray) -> Measures:
    """Write the table, without a figure."""
    np.save(path / "table.npy", table)
    return {}


def loaded(comm: CountedComm, task: Task) -> tuple[Problem, list[Extras]]:
    """Load on one rank per host and share the data; only this rank has the Extras."""
    extras: list[Extras] = []

    def load() -> tuple[Any, np.ndarray]:
        data, start, more = task.load()
        extras.append(more)
        return data, start

    def evaluate(table: np.ndarray) -> Measures:
        objective = task.model.objective(table, problem.kernel.data)
        return {"objective": objective, **extras[0].evaluate(table)}

    problem = descent.problem(task.model, *load_shared(comm, load), evaluate)
    return problem, extras


def sparsity(problem: Problem, stated: sparse_flags.Stated) -> dict[str, float]:
    """Print and return the sparsity of a problem and the components of its batches."""
    edges, rows = problem.kernel.data.edges, len(problem.params)
    conflicts, deferred = structure(edges, rows), hubs(edges, rows, stated.hubs)
    # The edges are in random order: the first ones are a sample.
    count = min(len(edges.starts) - 1, SOME)
    first = Edges(edges.starts[: count + 1], edges.rows[: edges.starts[count]])
    largest = {
        batch: mean_share(component_sizes(first, batch, deferred))
        for batch in BATCHES
        if batch <= count
    }
    sys.stdout.write(
        "\n".join([*lines(conflicts), connected(largest, deferred)]) + "\n"
    )
    return conflicts._asdict() | {
        f"component_{b}": share for b, share in largest.items()
    }


def mean_share(blocks: Sequence[np.ndarray]) -> float:
    """Return the mean share of a block in its largest component."""
    return float(np.mean([sizes[0] / sizes.sum() for sizes in blocks]))


def run(
    task: Task,
    values: flags.FlagValues,
    experiment: str,
    peers: Callable[[Problem, sparse_flags.Stated], Measures] | None = None,
) -> list[dict[str, Any]]:
    """Train by the flags, on ranks of one host; return this rank's summary.

    Args:
      task: Problem to train.
      values: Flags.
      experiment: Name of the run folder.
      peers: Function that measures other programs on the problem; None: no comparison.
    """
    comm, path = Metered(world(values.watchdog)), runs.path(values.out, experiment)
    begun = time.perf_counter()
    stated = sparse_flags.filled(values, task.stated)
    problem, extras = loaded(comm, task)
    how = sparse_flags.settings(values, stated)
    # Ranks without work sleep: a waiting rank would occupy a core.
    facts = first_of_all(comm, lambda: {} if comm.rank else sparsity(problem, stated))
    tables: list[np.ndarray] = []

    def evaluate(table: np.ndarray) -> Measures:
        tables[:] = [table]
        return problem.evaluate(table)

    with writing.first(
        path,
        values,
        comm,
        writers.console(
            stated.epochs, unit="epoch", row_text=progress, summary_text=ends
        ),
        figures.chart(path / "objective", "epoch", "objective"),
        sentence=sentence,
    ) as writer:
        steps = begin(values.updates, problem, how, comm, Timer())
        with closing(steps):
            epochs = islice(steps, stated.epochs)
            summary = train(epochs, evaluate, writer, evaluate_every=1)
        summary |= {"workers": comm.size * values.threads, **facts}

        def conclude() -> None:
            if comm.rank:
                return
            summary.update(speeds(summary), **extras[0].save(path, tables[-1]))
            if values.reference and extras[0].optimum:
                least = extras[0].optimum(problem)
                objective = task.model.objective(least, problem.kernel.data)
                summary.update(gap(summary["objective"], objective))
            if peers:
                summary.update(peers(problem, stated))
            summary["total_seconds"] = time.perf_counter() - begun
            writer.summary(summary)

        first_of_all(comm, conclude)
    return [summary]
