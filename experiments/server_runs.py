"""One run on parameter servers: train, collect, evaluate every snapshot."""

import math
from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import NamedTuple

import flags
import numpy as np

from dml.data.minibatches import minibatches
from dml.metrics.server_figure import histogram
from dml.metrics.timer import Timer
from dml.metrics.writers import Writer, ignore
from dml.sim.laws import drawing, law
from dml.strategies.parameters import Update
from dml.strategies.server.report import Collected, Report, collected
from dml.strategies.server.server import Setup, divided, server
from dml.strategies.server.tables import tabled
from dml.train import train
from dml.types import CountedComm, Problem, nothing
from dml.wire.messages import Delayed, Metered, broadcast
from dml.wire.messages.server import Applied
from dml.wire.once import once

SILENT = Writer(ignore, ignore)
COLUMNS = (*Applied._fields, "server")  # of Collected.log


class Plan(NamedTuple):
    """How much is done, and how long it takes."""

    batch: int  # examples in a minibatch, over all workers
    clocks: int
    seed: int = 0
    law: str = ""  # of what a worker's computing takes; "": nothing
    scale: float = 1.0  # seconds for each of the law's


class Ran(NamedTuple):
    """What happened, on rank 0; seconds count from the start, in the law's unit."""

    collected: Collected
    log: Mapping[str, np.ndarray]  # by the names of COLUMNS
    curves: Mapping[str, list[float]]  # seconds, clocks, updates and what is evaluated
    summary: dict[str, float | None]  # None: not finite

    @property
    def staleness(self) -> np.ndarray:
        """Return how many gradients had staleness 0, 1, 2, ..."""
        counts = (self.log["late"] == 0) & (self.log["rows"] > 0)
        return histogram(self.log["staleness"][counts])

    @property
    def work(self) -> np.ndarray:
        """Return what each worker computed and waited."""
        return self.collected.work[:, :2]


def ran(
    comm: CountedComm,
    problem: Problem,
    update: Update,
    setup: Setup,
    plan: Plan,
    writer: Writer = SILENT,
) -> Ran | None:
    """Train on all ranks of comm; return what happened on rank 0, None elsewhere."""
    comm = Metered(comm)  # counts this run alone
    if plan.law:
        comm = Delayed(comm, drawing(law(plan.law), plan.seed, comm.rank), plan.scale)
    problem = once(comm, "run", id(problem.params), partial(tabled, problem))
    report = Report()
    batches = minibatches(problem.examples, plan.batch, plan.seed)
    comm.Barrier()
    begun = comm.Wtime()
    timer = Timer(comm.Wtime)
    some = islice(batches, plan.clocks)
    steps = server(
        problem, some, update, comm=comm, timer=timer, setup=setup, report=report
    )
    # runs that diverge go on; the report has the table, which is collected once
    steps = (step._replace(params=nothing) for step in steps)
    train(steps, lambda table: {}, writer, finite=False)
    split = divided(comm, problem, len(setup.roles.servers))
    width = problem.params.shape[1]
    found = collected(comm, setup.roles, split, width, report)
    return evaluated(problem, found, begun, plan.scale) if found else None


def evaluated(problem: Problem, found: Collected, begun: float, scale: float) -> Ran:
    """Evaluate every snapshot; only now, so that it disturbs nobody."""
    log = dict(zip(COLUMNS, found.log.T, strict=True))
    log["seconds"] = (log["seconds"] - begun) / scale
    end = float(log["seconds"].max(initial=0))
    moments = [(0.0, 0.0, 0, problem.params)]
    moments += [((s - begun) / scale, *rest) for s, *rest in found.snapshots]
    clocks = float(log["clock"].max(initial=-1) + 1)
    moments.append((end, clocks, int(found.summary["updates"]), found.table))
    curves: dict[str, list[float]] = {"seconds": [], "clocks": [], "updates": []}
    with np.errstate(over="ignore", invalid="ignore"):
        for *moment, table_TxD in moments:
            row = dict(zip(curves, moment, strict=False)) | problem.evaluate(table_TxD)
            for name, value in row.items():
                curves.setdefault(name, []).append(float(value))
    ends = ((name, values[-1]) for name, values in curves.items())
    measured = {name: end if math.isfinite(end) else None for name, end in ends}
    summary = measured | found.summary | {"imbalance": heat_imbalance(problem, found)}
    work = found.work / np.where(np.arange(found.work.shape[1]) < 2, scale, 1)
    return Ran(found._replace(work=work), log, curves, summary)


def heat_imbalance(problem: Problem, found: Collected) -> float:
    """Return the busiest server's share of the gradients' rows, over the mean."""
    server, rows = found.log[:, -1].astype(int), found.log[:, COLUMNS.index("rows")]
    load = np.bincount(server, rows)
    return float(load.max(initial=0) / (load.mean() or 1)) if len(load) else 1.0


def reached(ran: Ran, column: str, target: float, falls: bool = True) -> float | None:
    """Return the seconds until a curve was first as good as a target; None: never."""
    values = np.array(ran.curves[column])
    good = np.flatnonzero(values <= target if falls else values >= target)
    return ran.curves["seconds"][good[0]] if len(good) else None


def agreed(comm: CountedComm, value: float | None) -> float:
    """Return rank 0's value on every rank."""
    word = np.array([value or 0.0])
    broadcast(comm, word)
    return float(word[0])


def virtual_if_alone(values: flags.FlagValues, ranks: int) -> None:
    """Use so many virtual ranks where mpirun has started no more than one."""
    from dml.wire.messages.comm import world

    if not values.simulate and world(values.watchdog).size == 1:
        values.simulate = ranks
