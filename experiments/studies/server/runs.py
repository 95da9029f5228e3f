"""One run on parameter servers: its training, evaluation, rows, summary and figures."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from lab import flags

from dml.data.minibatches import minibatches
from dml.figures import server as server_figure
from dml.figures import style as figures
from dml.figures.style import Panel
from dml.metrics.timer import Timer
from dml.runs.writers import Columns, Writer, cell, ignore, line
from dml.sim.delays import delay_distribution, step_seconds
from dml.strategies.parameters import Update
from dml.strategies.server.report import Collected, Report, collected
from dml.strategies.server.server import Setup, row_partition, server
from dml.strategies.server.tables import as_table
from dml.train import train
from dml.types import CountedComm, Problem, nothing
from dml.wire.collectives import broadcast
from dml.wire.comm import Delayed, Metered
from dml.wire.comm.once import once
from dml.wire.server.server import Applied

SILENT = Writer(ignore, ignore)
LOGGED = (*Applied._fields, "server")  # columns of Collected.log
COLUMNS: Columns = {  # of a run, in the tables of studies
    "updates": (7, "{updates:,.0f}"),
    "seconds": (8, "{seconds:,.1f}"),
    "to target": (9, "{seconds_to_target:,.1f}"),
    "stale": (6, "{staleness_mean:.2f}"),
    "most": (4, "{staleness_max}"),
    "late": (5, "{late:,}"),
    "idle": (5, "{idle_share:.1%}"),
    "words": (12, "{words_sent:,}"),
}
MAX_PANEL_VALUE = 1e6  # largest value in a panel
COUNTS = ("worker", "clock", "staleness", "rows", "late", "server")


class Plan(NamedTuple):
    """The minibatches of a run, and the delays of its workers."""

    batch: int  # examples in a minibatch, over all workers
    clocks: int
    seed: int = 0
    law: str = ""  # delay distribution of a worker's computation; "": no delays
    scale: float = 1.0  # seconds per unit of the delay distribution


class Ran(NamedTuple):
    """Results of a run on rank 0; seconds since the start in the unit of the delays."""

    collected: Collected
    log: Mapping[str, np.ndarray]  # by the names of LOGGED
    curves: Mapping[str, list[float]]  # seconds, clocks, updates and measures
    summary: dict[str, float | None]  # None: not finite

    @property
    def staleness(self) -> np.ndarray:
        """Return the numbers of gradients with staleness 0, 1, 2, ..."""
        counts = (self.log["late"] == 0) & (self.log["rows"] > 0)
        return server_figure.histogram(self.log["staleness"][counts])

    @property
    def work(self) -> np.ndarray:
        """Return the seconds of computing and waiting of each worker."""
        return self.collected.work[:, :2]


def ran(
    comm: CountedComm,
    problem: Problem,
    update: Update,
    setup: Setup,
    plan: Plan,
    writer: Writer = SILENT,
) -> Ran | None:
    """Train on all ranks of comm; return the results on rank 0, None elsewhere."""
    comm = Metered(comm)  # counts this run alone
    if plan.law:
        comm = Delayed(
            comm,
            step_seconds(delay_distribution(plan.law), plan.seed, comm.rank),
            plan.scale,
        )
    key, call = tuple(map(id, problem)), partial(as_table, problem)
    problem = once(comm, "run", key, call)
    report = Report()
    batches = minibatches(problem.examples, plan.batch, plan.seed)
    comm.Barrier()
    begun = comm.Wtime()
    timer = Timer(comm.Wtime)
    limited = islice(batches, plan.clocks)
    steps = server(
        problem, limited, update, comm=comm, timer=timer, setup=setup, report=report
    )
    # Diverging runs continue. The report contains the table, collected once.
    steps = (step._replace(params=nothing) for step in steps)
    train(steps, lambda table: {}, writer, finite=False)
    split = row_partition(comm, problem, len(setup.roles.servers))
    width = problem.params.shape[1]
    result = collected(comm, setup.roles, split, width, report)
    return evaluated(problem, result, begun, plan.scale) if result else None


def evaluated(problem: Problem, result: Collected, begun: float, scale: float) -> Ran:
    """Evaluate the snapshots after the run, so that no rank waits."""
    log = dict(zip(LOGGED, result.log.T, strict=True))
    log["seconds"] = (log["seconds"] - begun) / scale
    end = float(log["seconds"].max(initial=0))
    moments = [(0.0, 0.0, 0, problem.params)]
    moments += [((s - begun) / scale, *rest) for s, *rest in result.snapshots]
    clocks = float(log["clock"].max(initial=-1) + 1)
    moments.append((end, clocks, int(result.summary["updates"]), result.table))
    curves: dict[str, list[float]] = {"seconds": [], "clocks": [], "updates": []}
    with np.errstate(over="ignore", invalid="ignore"):
        for *moment, table_TxD in moments:
            row = dict(zip(curves, moment, strict=False)) | problem.evaluate(table_TxD)
            for name, value in row.items():
                curves.setdefault(name, []).append(float(value))
    ends = ((name, values[-1]) for name, values in curves.items())
    measured = {name: end if math.isfinite(end) else None for name, end in ends}
    summary = measured | result.summary | {"imbalance": imbalance(result)}
    work = result.work / np.where(np.arange(result.work.shape[1]) < 2, scale, 1)
    return Ran(result._replace(work=work), log, curves, summary)


def imbalance(result: Collected) -> float:
    """Return the ratio of the largest to the mean number of rows of a server."""
    server, rows = result.log[:, -1].astype(int), result.log[:, LOGGED.index("rows")]
    load = np.bincount(server, rows)
    return float(load.max(initial=0) / (load.mean() or 1)) if len(load) else 1.0


def reached(ran: Ran, column: str, target: float, falls: bool = True) -> float | None:
    """Return the seconds until a curve first reaches a target, or None."""
    values = np.array(ran.curves[column])
    good = np.flatnonzero(values <= target if falls else values >= target)
    return ran.curves["seconds"][good[0]] if len(good) else None


def rows(result: Ran) -> Iterator[dict[str, Any]]:
    """Yield a row per gradient and server, with the number of the server's update."""
    columns = {
        name: result.log[name].astype(int) if name in COUNTS else result.log[name]
        for name in LOGGED
    }
    lines = zip(*(column.tolist() for column in columns.values()), strict=True)
    for number, values in enumerate(lines, 1):
        yield {"update": number} | dict(zip(columns, values, strict=True))


def summarised(result: Ran) -> dict[str, Any]:
    """Return the run's numbers, the histogram of staleness and a hash of the table."""
    table_TxD, offered = result.collected.table, result.summary["offered"]
    return result.summary | {
        "sifted_share": result.summary["sifted"] / offered if offered else 0.0,
        "staleness": result.staleness.tolist(),
        "sha256": hashlib.sha256(table_TxD.tobytes()).hexdigest(),
    }


def ends(summary: Mapping[str, Any]) -> str:
    """Return the last two lines of the console."""
    scores = ("objective", "accuracy", "rmse", "zeros")
    quality = line(summary, *(f"{name} {{{name}:.4f}}" for name in scores))
    return f"{quality}  " + cell(
        summary,
        "table {sha256:.8}\n{updates:,} updates  {late:,} late  "
        "staleness {staleness_mean:.2f}, at most {staleness_max}  "
        "idle {idle_share:.1%}  {words_sent:,} words sent  imbalance {imbalance:.2f}",
    )


def picked(*names: str) -> Columns:
    """Return the named columns of COLUMNS."""
    return {name: COLUMNS[name] for name in names}


def drawn(path: Path, result: Ran) -> None:
    """Draw staleness, the objective by updates and by seconds, and the workers."""
    staleness(path / "staleness", {"gradients": result})
    waits(path / "waiting", {"workers": result})
    named, xs = {"objective": result}, ("updates", "seconds")
    panels = [panel(f"by {x}", named, x, "objective") for x in xs]
    figures.panels(path / "objective", panels)


def staleness(path: Path, named: Mapping[str, Ran]) -> None:
    """Draw the histogram of each run's staleness."""
    server_figure.histograms(path, {name: ran.staleness for name, ran in named.items()})


def waits(path: Path, named: Mapping[str, Ran]) -> None:
    """Draw the computing and waiting time of the workers of each run."""
    server_figure.waits(path, {name: ran.work for name, ran in named.items()})


def panel(title: str, named: Mapping[str, Ran], x: str, y: str) -> Panel:
    """Return a panel with a curve for each run; diverging curves are clipped."""
    series = {
        name: (ran.curves[x], np.clip(ran.curves[y], None, MAX_PANEL_VALUE))
        for name, ran in named.items()
    }
    return Panel(title, series, x, y)


def agreed(comm: CountedComm, value: float | None) -> float:
    """Return rank 0's value on every rank."""
    word = np.array([value or 0.0])
    broadcast(comm, word)
    return float(word[0])


def virtual_if_alone(values: flags.FlagValues, ranks: int) -> None:
    """Use virtual ranks if mpirun has started a single process."""
    from dml.wire.comm.mpi import world

    if not values.simulate and world(values.watchdog).size == 1:
        values.simulate = ranks
