"""Problems of hogwild.py and cyclades.py, and alternating timings of strategies.

A case is a strategy of --updates and a number of workers. Cases run alternately, in
timings of several epochs, so that a slow phase of the host affects all of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from lab import flags, writing
from lab.claims import Claim
import numpy as np

from dml.metrics.timer import Timer
from dml.models.sparse import svm
from dml.runs import writers
from dml.runs.writers import Row
from dml.sim.delays import delay_distribution
from dml.strategies.shared.delayed import delayed
from dml.strategies.shared.workers import Descent, orders
from dml.train import curve
from dml.types import BadInput, CountedComm, Problem, Step
from dml.wire.comm import first_of_all
from studies.shared_memory.sparse_cuts import Sizes, cuts
from studies.shared_memory.sparse_flags import Defaults
from studies.shared_memory.sparse_problems import documents, ratings
from studies.shared_memory.sparse_report import PHASES
from studies.shared_memory.sparse_runs import Extras, Task, save
from studies.shared_memory.sparse_strategies import Settings, begin

MU, MUS = 1e-4, (0.1, 0.2)  # L2 weights: SVM; users and items
GENERATED_MU = 1e-5  # L2 weight of generated documents
HYPERGRAPH = (50_000, 100_000, 10)  # edges, rows, Ω (rows per edge)
GENERATED_DEFAULTS = Defaults(0.5, 0.8, 10, 64, hubs=0.005)
SPARSE, DENSE = "sparse", "dense"  # data sets that differ in ρ only
Case = tuple[str, int]  # strategy, number of workers
SERIAL: Case = ("serial", 1)
LATE = "late "  # prefix of the name of simulated HOGWILD! with a delay


def hypergraph(share: float, seed: int) -> Task:
    """Return generated documents whose sparsity measures ρ and Δ equal `share`."""

    def load() -> tuple[Any, np.ndarray, Extras]:
        from dml.data.sparse import hypergraphs

        count, width, omega = HYPERGRAPH
        edges = hypergraphs.generate(count, width, omega, share, share, seed)
        data = svm.documents(hypergraphs.documents(edges, width, seed), GENERATED_MU)
        return data, np.zeros(width, np.float32), no_extras()

    return Task(svm, load, GENERATED_DEFAULTS)


def no_extras() -> Extras:
    """Return Extras without held-out examples and without an optimum."""
    return Extras(lambda table: {}, lambda problem: problem.params, save)


PROBLEMS: Mapping[str, Callable[[int], Task]] = {
    "svm": lambda seed: documents("newsgroups", "hinge", MU, seed=seed),
    "completion": lambda seed: ratings("movielens", 10, MUS, seed=seed),
    "cuts": lambda seed: cuts("volume", Sizes(), compared=False, seed=seed),
    SPARSE: partial(hypergraph, 0.0002),
    DENSE: partial(hypergraph, 1.0),
}


class Timing(NamedTuple):
    """Several consecutive epochs of a case.

    seconds: seconds of updates and of waiting for other workers.
    plan_seconds: seconds before the first epoch.
    table: table at the end, on rank 0.
    lost_share: share of the changes of rows that were lost; None: not counted.
    """

    seconds: float
    plan_seconds: float
    table: np.ndarray | None
    lost_share: float | None


Timings = Mapping[Case, Sequence[Timing]]


def settings(defaults: Defaults, epochs: int, seed: int) -> Settings:
    """Return the arguments of all cases; the rates are the same in every timing."""

    def rate(epoch: int) -> float:
        return defaults.lr * defaults.decay ** ((epoch - 1) % epochs)

    return Settings(Descent(rate), defaults.batch, seed)


def run_alternately(
    comm: CountedComm,
    problem: Problem,
    options: Settings,
    cases: Iterable[Case],
    repeats: int,
    epochs: int,
) -> Timings:
    """Run the cases alternately; collective.

    The list of timings of a case is empty on ranks that do not run it.

    comm: ranks of one host.
    problem: problem.
    options: arguments of all strategies.
    cases: strategies and numbers of workers.
    repeats: number of timings of each case.
    epochs: number of epochs of a timing.
    """
    with ExitStack() as stack:
        started = {
            case: stack.enter_context(start_case(comm, problem, options, case))
            for case in cases
        }
        timings: dict[Case, list[Timing]] = {case: [] for case in started}
        for _ in range(repeats):
            for case, run in started.items():
                comm.Barrier()
                timings[case] += run(epochs)
    return timings


@contextmanager
def start_case(
    comm: CountedComm, problem: Problem, options: Settings, case: Case
) -> Iterator[Callable[[int], list[Timing]]]:
    """Start a case; yield a function that trains and returns a list of one timing.

    The argument of the function is the number of epochs. A case of one worker runs on
    rank 0; the function returns an empty list on the other ranks.
    """
    updates, count = case
    team = comm.Split(comm.rank, comm.rank) if count == 1 < comm.size else comm
    if count % team.size:
        raise BadInput(
            f"expected 1 worker or a multiple of {comm.size} ranks, got {count}; pass "
            f"--workers=1,{comm.size}"
        )
    options = options._replace(threads=count // team.size)
    with closing(start_steps(updates, problem, options, team)) as steps:
        if team is comm:
            yield lambda epochs: [run_epochs(steps, epochs)]
            return
        # The other ranks sleep until rank 0 has finished.
        yield lambda epochs: first_of_all(
            comm, lambda: [] if comm.rank else [run_epochs(steps, epochs)]
        )


def start_steps(
    updates: str, problem: Problem, options: Settings, comm: CountedComm
) -> Iterator[Step]:
    """Return the Steps of a strategy.

    updates: strategy of --updates; or, for example, "late 16": HOGWILD! simulated on
      one worker, where each read is delayed by 16 updates.
    problem: problem.
    options: arguments of all strategies.
    comm: ranks of the strategy.
    """
    if not updates.startswith(LATE):
        return begin(updates, problem, options, comm, Timer())
    delay = int(updates.removeprefix(LATE))
    order = orders(problem.examples, options.batch, options.seed)
    return delayed(
        problem,
        order,
        options.update,
        comm=comm,
        timer=Timer(),
        distribution=delay_distribution(f"constant:{delay}"),
        seed=options.seed,
        max_delay=delay,
    )


def run_epochs(steps: Iterator[Step], epochs: int) -> Timing:
    """Train for a number of epochs."""
    rows, summary = curve(
        islice(steps, epochs), lambda table: {"table": table}, finite=False
    )
    lost = [row["rows_lost"] for row in rows if "rows_lost" in row]
    changed = sum(row.get("rows_changed", 0.0) for row in rows)
    return Timing(
        sum(summary.get(phase, 0.0) for phase in PHASES),
        summary.get("plan_seconds", 0.0),
        summary.get("table"),
        sum(lost) / max(changed, 1) if lost else None,
    )


def speedup(base: Sequence[Timing], timings: Sequence[Timing]) -> float:
    """Return the median over repeats of the speed-up relative to `base`."""
    pairs = zip(base, timings, strict=True)
    return float(np.median([slow.seconds / fast.seconds for slow, fast in pairs]))


def seconds(timings: Sequence[Timing]) -> float:
    """Return the median seconds of the timings."""
    return float(np.median([timing.seconds for timing in timings]))


def objective(problem: Problem, table: np.ndarray | None) -> float:
    """Return the objective of a table."""
    return problem.kernel.model.objective(table, problem.kernel.data)


def study(
    comm: CountedComm,
    flag_values: flags.FlagValues,
    path: Path,
    report: ModuleType,
    rows: Iterable[Row],
    claims: Sequence[Claim],
) -> dict[str, Any]:
    """Write the run folder of a study; return the summary on rank 0, {} elsewhere.

    comm: ranks of one host.
    flag_values: parsed flags.
    path: run folder.
    report: module with the columns of each kind of rows (KINDS), `draw`,
      `summarize` and `conclude`.
    rows: iterator that measures a row when it is advanced.
    claims: claims that are judged by the rows.
    """
    tables = writers.tables(report.KINDS, {}, flag_values.wide, key="kind")
    with writing.run_writer(
        path, flag_values, comm, tables, claims=claims, conclude=report.conclude
    ) as writer:
        written: list[Row] = []
        for row in rows:
            writer.row(row)
            written.append(row)
        if comm.rank:
            return {}
        summary = report.summarize(written)
        report.draw(path, written)
        writer.summary(summary)
    return summary
