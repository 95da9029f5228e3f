"""A run of training in shared memory: load on one rank, measure sparsity, train.

A Task is trained; rows, summary, table and figures are written to the run folder.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from lab import flags, writing
import numpy as np

from dml.figures import style as figures
from dml.metrics.timer import Timer
from dml.models.sparse import problem as descent
from dml.runs import folder, writers
from dml.train import train
from dml.types import CountedComm, Edges, Problem, SparseModel
from dml.wire.comm import Metered, first_of_all
from dml.wire.comm.mpi import world
from dml.wire.memory.conflicts import component_sizes, hubs
from dml.wire.memory.shared import load_shared
from dml.wire.memory.structure import lines, structure
from studies.shared_memory import sparse_flags
from studies.shared_memory.sparse_report import (
    components_text,
    conclude,
    gap,
    progress,
    speeds,
    summary_text,
)
from studies.shared_memory.sparse_strategies import begin

BATCHES = 16, 64, 256, 1024  # batch sizes whose components are printed
MAX_EDGES = 1 << 16  # edges in these batches, at most
Measures = Mapping[str, Any]


class Extras(NamedTuple):
    """Functions of a Task that only rank 0 calls.

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
      model: Model of the problem.
      load: () -> the data of the model, the start value, and the Extras.
      defaults: Default values of the flags.
    """

    model: SparseModel
    load: Callable[[], tuple[Any, np.ndarray, Extras]]
    defaults: sparse_flags.Defaults


def save(path: Path, table: np.ndarray) -> Measures:
    """Write the table, without a figure."""
    np.save(path / "table.npy", table)
    return {}


def load_problem(comm: CountedComm, task: Task) -> tuple[Problem, list[Extras]]:
    """Load on one rank per host and share the data; collective.

    Returns:
      The problem, and a list with the Extras, which is empty on the other ranks.
    """
    extras: list[Extras] = []

    def load() -> tuple[Any, np.ndarray]:
        data, start, extras_of_task = task.load()
        extras.append(extras_of_task)
        return data, start

    def evaluate(table: np.ndarray) -> Measures:
        objective = task.model.objective(table, problem.kernel.data)
        return {"objective": objective, **extras[0].evaluate(table)}

    problem = descent.problem(task.model, *load_shared(comm, load), evaluate)
    return problem, extras


def sparsity(problem: Problem, defaults: sparse_flags.Defaults) -> dict[str, float]:
    """Print and return the sparsity of a problem and the components of its batches."""
    edges, rows = problem.kernel.data.edges, len(problem.params)
    conflicts, deferred = structure(edges, rows), hubs(edges, rows, defaults.hubs)
    # The edges are in random order: the first ones are a sample.
    count = min(len(edges.starts) - 1, MAX_EDGES)
    sample = Edges(edges.starts[: count + 1], edges.rows[: edges.starts[count]])
    largest = {
        batch: mean_share(component_sizes(sample, batch, deferred))
        for batch in BATCHES
        if batch <= count
    }
    text = [*lines(conflicts), components_text(largest, deferred)]
    sys.stdout.write("\n".join(text) + "\n")
    return conflicts._asdict() | {
        f"component_{batch}": share for batch, share in largest.items()
    }


def mean_share(sizes_by_block: Sequence[np.ndarray]) -> float:
    """Return the mean share of a block's examples in its largest component.

    sizes_by_block: sizes of the components of each block, the largest first.
    """
    return float(np.mean([sizes[0] / sizes.sum() for sizes in sizes_by_block]))


def run(
    task: Task,
    flag_values: flags.FlagValues,
    experiment: str,
    peers: Callable[[Problem, sparse_flags.Defaults], Measures] | None = None,
) -> list[dict[str, Any]]:
    """Train by the flags, on ranks of one host; return this rank's summary.

    Args:
      task: Problem to train.
      flag_values: Parsed flags.
      experiment: Name of the run folder.
      peers: Function that measures other programs on the problem; None: no comparison.
    """
    comm = Metered(world(flag_values.watchdog))
    path = folder.path(flag_values.out, experiment)
    start = time.perf_counter()
    defaults = sparse_flags.replace_defaults(flag_values, task.defaults)
    problem, extras = load_problem(comm, task)
    options = sparse_flags.settings(flag_values, defaults)
    # Ranks without work sleep: a waiting rank would occupy a core.
    sparsity_measures = first_of_all(
        comm, lambda: {} if comm.rank else sparsity(problem, defaults)
    )
    last_table: list[np.ndarray] = []

    def evaluate(table: np.ndarray) -> Measures:
        last_table[:] = [table]
        return problem.evaluate(table)

    console = writers.console(
        defaults.epochs, unit="epoch", row_text=progress, summary_text=summary_text
    )
    chart = figures.chart(path / "objective", "epoch", "objective")
    with writing.run_writer(
        path, flag_values, comm, console, chart, conclude=conclude
    ) as writer:
        steps = begin(flag_values.updates, problem, options, comm, Timer())
        with closing(steps):
            epochs = islice(steps, defaults.epochs)
            summary = train(epochs, evaluate, writer, evaluate_every=1)
        summary |= {"workers": comm.size * flag_values.threads, **sparsity_measures}

        def finish() -> None:
            if comm.rank:
                return
            summary.update(speeds(summary), **extras[0].save(path, last_table[0]))
            if flag_values.reference and extras[0].optimum:
                best_table = extras[0].optimum(problem)
                optimum = task.model.objective(best_table, problem.kernel.data)
                summary.update(gap(summary["objective"], optimum))
            if peers:
                summary.update(peers(problem, defaults))
            summary["total_seconds"] = time.perf_counter() - start
            writer.summary(summary)

        first_of_all(comm, finish)
    return [summary]
