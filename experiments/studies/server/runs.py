"""One run on parameter servers: its training, evaluation, rows, summary and figures."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

from lab import flags, timelines
import numpy as np

from dml.data.minibatches import minibatches
from dml.figures import server as server_figure
from dml.figures import style as figures
from dml.figures.style import Panel
from dml.runs.results import Run
from dml.runs.writers import Columns, Writer, cell, ignore, line
from dml.sim.delays import delay_distribution, step_seconds
from dml.strategies.loops.parameters import Update
from dml.strategies.server.report import (
    Collected,
    Report,
    collect_living_reports,
    collect_reports,
)
from dml.strategies.server.server import Setup, row_partition, server
from dml.strategies.server.tables import as_table
from dml.train import train
from dml.types import CountedComm, Problem, no_op
from dml.wire.collectives import broadcast
from dml.wire.comm import Delayed, Metered
from dml.wire.comm.once import once
from dml.wire.server.server import Applied

SILENT = Writer(ignore, ignore)
LOGGED = (*Applied._fields, "server")  # columns of Collected.log
COLUMNS: Columns = {  # numbers of a run in the tables of studies
    "updates": (7, "{updates:,.0f}"),
    "seconds": (8, "{seconds:,.1f}"),
    "to target": (9, "{seconds_to_target:,.1f}"),
    "stale": (6, "{staleness_mean:.2f}"),
    "max": (4, "{staleness_max}"),
    "late": (5, "{late:,}"),
    "idle": (5, "{idle_share:.1%}"),
    "words": (12, "{words_sent:,}"),
}
MAX_PANEL_VALUE = 1e6  # largest value in a panel
INTEGERS = ("worker", "clock", "staleness", "rows", "late", "server")  # of LOGGED


class ServerPlan(NamedTuple):
    """The minibatches of a run, and the delays of its workers."""

    batch: int  # examples in a minibatch, over all workers
    clocks: int  # number of minibatches
    seed: int = 0
    law: str = ""  # delay distribution of a worker's computation; "": no delays
    scale: float = 1.0  # seconds per unit of the delay distribution
    reshuffle: bool = True  # False: all epochs have the minibatches of the first


class RunResult(NamedTuple):
    """Results of a run on rank 0; seconds since the start in the unit of the delays.

    Attributes:
      collected: Logs, snapshots and table, collected from all ranks.
      log: A column per name in LOGGED, with an element per gradient and server.
      curves: Seconds, clocks, updates and measures, with an element per snapshot.
      summary: Last values of the curves, and totals; None: not finite.
    """

    collected: Collected
    log: Mapping[str, np.ndarray]
    curves: Mapping[str, list[float]]
    summary: dict[str, float | None]

    @property
    def staleness(self) -> np.ndarray:
        """Return the numbers of gradients with staleness 0, 1, 2, ..."""
        applied = (self.log["late"] == 0) & (self.log["rows"] > 0)
        return server_figure.histogram(self.log["staleness"][applied])

    @property
    def work(self) -> np.ndarray:
        """Return the seconds of computing and waiting of each worker."""
        return self.collected.work[:, :2]


def train_on_servers(
    comm: CountedComm,
    problem: Problem,
    update: Update,
    setup: Setup,
    plan: ServerPlan,
    writer: Writer = SILENT,
    report: Report | None = None,
) -> RunResult | None:
    """Train on all ranks of comm; return the results on rank 0, None elsewhere.

    An elastic run returns them on the first living rank.

    Args:
      comm: Communicator.
      problem: Problem to train.
      update: Update of a server's shard.
      setup: Roles of the ranks, consistency and options of workers.
      plan: Minibatches and delays.
      writer: Writer of a row per clock.
      report: Receives the measurements of this rank.
    """
    comm = Metered(comm)  # counts the messages of this run only
    if plan.law:
        comm = Delayed(
            comm,
            step_seconds(delay_distribution(plan.law), plan.seed, comm.rank),
            plan.scale,
        )
    key, call = tuple(map(id, problem)), partial(as_table, problem)
    problem = once(comm, "run", key, call)
    report = report or Report()
    epochs = None if plan.reshuffle else 1
    batches = minibatches(problem.examples, plan.batch, plan.seed, epochs)
    if setup.elastic:
        comm.Agree(1)  # a barrier of the living ranks
    else:
        comm.Barrier()
    start = comm.Wtime()
    timer = timelines.timer(comm, comm.Wtime)
    limited = islice(batches if plan.reshuffle else cycle(batches), plan.clocks)
    steps = server(
        problem, limited, update, comm=comm, timer=timer, setup=setup, report=report
    )
    # Diverging runs continue. The report contains the table, collected once.
    steps = (step._replace(params=no_op) for step in steps)
    train(steps, lambda table: {}, writer, finite=False)
    split = row_partition(comm, problem, len(setup.roles.servers))
    width = problem.params.shape[1]
    collect = collect_living_reports if setup.elastic else collect_reports
    result = collect(comm, setup.roles, split, width, report)
    return evaluate_snapshots(problem, result, start, plan.scale) if result else None


def evaluate_snapshots(
    problem: Problem, result: Collected, start: float, scale: float
) -> RunResult:
    """Evaluate the snapshots after the run, so that no rank waits.

    Args:
      problem: Problem.
      result: Logs, snapshots and table of all ranks.
      start: Start of the run on the clock of the ranks.
      scale: Seconds per unit of the delay distribution.
    """
    log = dict(zip(LOGGED, result.log.T, strict=True))
    log["seconds"] = (log["seconds"] - start) / scale
    end = float(log["seconds"].max(initial=0))
    # Of each evaluation: seconds, clocks, updates, table.
    snapshots = [(0.0, 0.0, 0, problem.params)]
    for seconds, clocks, updates, table_TxD in result.snapshots:
        snapshots.append(((seconds - start) / scale, clocks, updates, table_TxD))
    clocks = float(log["clock"].max(initial=-1) + 1)
    snapshots.append((end, clocks, int(result.summary["updates"]), result.table))
    curves: dict[str, list[float]] = {"seconds": [], "clocks": [], "updates": []}
    with np.errstate(over="ignore", invalid="ignore"):
        for seconds, clocks, updates, table_TxD in snapshots:
            row = {"seconds": seconds, "clocks": clocks, "updates": updates}
            for name, value in (row | problem.evaluate(table_TxD)).items():
                curves.setdefault(name, []).append(float(value))
    last = {name: values[-1] for name, values in curves.items()}
    measured = {name: v if math.isfinite(v) else None for name, v in last.items()}
    summary = measured | result.summary | {"imbalance": imbalance(result)}
    # The first two columns of work are seconds, the others are counts.
    work = result.work / np.where(np.arange(result.work.shape[1]) < 2, scale, 1)
    return RunResult(result._replace(work=work), log, curves, summary)


def imbalance(result: Collected) -> float:
    """Return the ratio of the largest to the mean number of rows of a server."""
    server, rows = result.log[:, -1].astype(int), result.log[:, LOGGED.index("rows")]
    load = np.bincount(server, rows)
    return float(load.max(initial=0) / (load.mean() or 1)) if len(load) else 1.0


def time_to_target(
    result: RunResult, column: str, target: float, falls: bool = True
) -> float | None:
    """Return the seconds until a curve first reaches a target, or None.

    Args:
      result: Results of a run.
      column: Name of the curve.
      target: Target value.
      falls: Whether smaller values are better.
    """
    values = np.array(result.curves[column])
    indices = np.flatnonzero(values <= target if falls else values >= target)
    return result.curves["seconds"][indices[0]] if len(indices) else None


def rows(result: RunResult) -> Iterator[dict[str, Any]]:
    """Yield a row per gradient and server, with the number of the server's update."""
    columns = {
        name: result.log[name].astype(int) if name in INTEGERS else result.log[name]
        for name in LOGGED
    }
    lines = zip(*(column.tolist() for column in columns.values()), strict=True)
    for update, values in enumerate(lines, 1):
        yield {"update": update} | dict(zip(columns, values, strict=True))


def summarize(result: RunResult) -> dict[str, Any]:
    """Return the summary, the histogram of staleness and the table's SHA-256."""
    table_TxD, offered = result.collected.table, result.summary["offered"]
    return result.summary | {
        "filtered_share": result.summary["filtered"] / offered if offered else 0.0,
        "staleness": result.staleness.tolist(),
        "sha256": hashlib.sha256(table_TxD.tobytes()).hexdigest(),
    }


def conclude(run: Run) -> str:
    """Return the conclusion of a run."""
    unit = "virtual s" if run.flags.get("simulate") else "s"
    return cell(
        run.summary,
        f"Made {{updates:,}} updates in {{seconds:.3g}} {unit}: "
        "objective {objective:.4g}; "
        "workers waited {idle_share:.1%} of the time.",
    )


def summary_text(summary: Mapping[str, Any]) -> str:
    """Return the last two lines of the console."""
    scores = ("objective", "accuracy", "rmse", "zeros")
    quality = line(summary, *(f"{name} {{{name}:.4f}}" for name in scores))
    return f"{quality}  " + cell(
        summary,
        "table {sha256:.8}\n{updates:,} updates  {late:,} late  "
        "staleness {staleness_mean:.2f}, at most {staleness_max}  "
        "idle {idle_share:.1%}  {words_sent:,} words sent  "
        "imbalance of servers {imbalance:.2f}",
    )


def select_columns(*names: str) -> Columns:
    """Return the named columns of COLUMNS."""
    return {name: COLUMNS[name] for name in names}


def draw(path: Path, result: RunResult) -> None:
    """Draw staleness, the objective by updates and by seconds, and workers' times."""
    draw_staleness(path / "staleness", {"gradients": result})
    draw_waits(path / "waiting", {"workers": result})
    runs = {"objective": result}
    panels = [panel(f"by {x}", runs, x, "objective") for x in ("updates", "seconds")]
    figures.panels(path / "objective", panels)


def draw_staleness(path: Path, runs: Mapping[str, RunResult]) -> None:
    """Draw the histogram of the staleness of each run."""
    counts = {name: result.staleness for name, result in runs.items()}
    server_figure.histograms(path, counts)


def draw_waits(path: Path, runs: Mapping[str, RunResult]) -> None:
    """Draw the computing and waiting time of the workers of each run."""
    server_figure.waiting_times(
        path, {name: result.work for name, result in runs.items()}
    )


def panel(title: str, runs: Mapping[str, RunResult], x: str, y: str) -> Panel:
    """Return a panel with a curve for each run; diverging curves are clipped."""
    series = {
        name: (result.curves[x], np.clip(result.curves[y], None, MAX_PANEL_VALUE))
        for name, result in runs.items()
    }
    return Panel(title, series, x, y)


def broadcast_number(comm: CountedComm, number: float | None) -> float:
    """Return the number of rank 0 on every rank; None is sent as 0. Collective."""
    buffer = np.array([number or 0.0])
    broadcast(comm, buffer)
    return float(buffer[0])


def simulate_single_process(flag_values: flags.FlagValues, ranks: int) -> None:
    """Set --simulate to `ranks` in a single process, unless the flag is set."""
    from dml.wire.comm.mpi import world

    if not flag_values.simulate and world(0).size == 1:
        flag_values.simulate = ranks
