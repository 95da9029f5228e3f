"""Problems of hogwild.py and cyclades.py, and strategies that take turns on them.

A case is a strategy of --updates and a number of workers. Cases run alternately, in
turns of several epochs, so that a slow phase of the host affects all of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from lab import flags, writing
from lab.claims import Claim

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
from studies.shared_memory.sparse_flags import Stated
from studies.shared_memory.sparse_problems import documents, ratings
from studies.shared_memory.sparse_report import UPDATING
from studies.shared_memory.sparse_runs import Extras, Task, save
from studies.shared_memory.sparse_strategies import Settings, begin

MU, MUS = 1e-4, (0.1, 0.2)  # L2 weights: SVM; users and items
FAINT = 1e-5  # L2 weight of generated documents
HYPERGRAPH = (50_000, 100_000, 10)  # edges, rows, Ω
LEARNED = Stated(0.5, 0.8, 10, 64, hubs=0.005)
SPARSE, DENSE = "sparse", "dense"  # data sets that differ in ρ only
Case = tuple[str, int]
SERIAL: Case = ("serial", 1)
LATE = "late "  # prefix of the name of simulated HOGWILD! with a delay


def hypergraph(share: float, seed: int) -> Task:
    """Return generated documents; each shares a row with this share of all: ρ = Δ."""

    def load() -> tuple[Any, np.ndarray, Extras]:
        from dml.data.sparse import hypergraphs

        edges, width, omega = HYPERGRAPH
        made = hypergraphs.generated(edges, width, omega, share, share, seed)
        data = svm.documents(hypergraphs.documents(made, width, seed), FAINT)
        return data, np.zeros(width, np.float32), unused()

    return Task(svm, load, LEARNED)


def unused() -> Extras:
    """Return Extras without held-out examples and without an optimum."""
    return Extras(lambda table: {}, lambda problem: problem.params, save)


PROBLEMS: Mapping[str, Callable[[int], Task]] = {
    "svm": lambda seed: documents("newsgroups", "hinge", MU, seed=seed),
    "completion": lambda seed: ratings("movielens", 10, MUS, seed=seed),
    "cuts": lambda seed: cuts("volume", Sizes(), compared=False, seed=seed),
    SPARSE: partial(hypergraph, 0.0002),
    DENSE: partial(hypergraph, 1.0),
}


class Turn(NamedTuple):
    """Some epochs of a case.

    seconds: of updates and of waiting for other workers.
    planned: seconds before the first epoch.
    table: the table at the end; rank 0 has it.
    lost_share: the share of the changes of rows that was lost; None: not counted.
    """

    seconds: float
    planned: float
    table: np.ndarray | None
    lost_share: float | None


Turns = Mapping[Case, Sequence[Turn]]


def settings(stated: Stated, epochs: int, seed: int) -> Settings:
    """Return the arguments of all cases; all turns have the same rates."""

    def rate(epoch: int) -> float:
        return stated.lr * stated.decay ** ((epoch - 1) % epochs)

    return Settings(Descent(rate), stated.batch, seed)


def by_turns(
    comm: CountedComm,
    problem: Problem,
    how: Settings,
    cases: Iterable[Case],
    repeats: int,
    epochs: int,
) -> Turns:
    """Run every case for `repeats` turns; ranks without a worker return no Turns.

    comm: the ranks, all on one host.
    problem: the problem.
    how: the arguments of all strategies.
    cases: what takes turns.
    repeats: turns of each case.
    epochs: epochs of a turn.
    """
    with ExitStack() as stack:
        started = {
            case: stack.enter_context(running(comm, problem, how, case))
            for case in cases
        }
        turns: dict[Case, list[Turn]] = {case: [] for case in started}
        for _ in range(repeats):
            for case, run in started.items():
                comm.Barrier()
                turns[case] += run(epochs)
    return turns


@contextmanager
def running(
    comm: CountedComm, problem: Problem, how: Settings, case: Case
) -> Iterator[Callable[[int], list[Turn]]]:
    """Start a case; yield epochs -> [turn]. One worker is on rank 0."""
    updates, count = case
    team = comm.Split(comm.rank, comm.rank) if count == 1 < comm.size else comm
    if count % team.size:
        raise BadInput(
            f"expected 1 worker or a multiple of {comm.size} ranks, got {count}; pass "
            f"--workers=1,{comm.size}"
        )
    how = how._replace(threads=count // team.size)
    with closing(begun(updates, problem, how, team)) as steps:
        if team is comm:
            yield lambda epochs: [turn(steps, epochs)]
            return
        # The other ranks sleep until rank 0 has finished.
        yield lambda epochs: first_of_all(
            comm, lambda: [] if comm.rank else [turn(steps, epochs)]
        )


def begun(
    updates: str, problem: Problem, how: Settings, comm: CountedComm
) -> Iterator[Step]:
    """Return the Steps of --updates; "late 16" is HOGWILD! with reads 16 updates late.

    It is simulated on one worker.
    """
    if not updates.startswith(LATE):
        return begin(updates, problem, how, comm, Timer())
    delay = int(updates.removeprefix(LATE))
    order = orders(problem.examples, how.batch, how.seed)
    own = {
        "distribution": delay_distribution(f"constant:{delay}"),
        "seed": how.seed,
        "most": delay,
    }
    return delayed(problem, order, how.update, comm=comm, timer=Timer(), **own)


def turn(steps: Iterator[Step], epochs: int) -> Turn:
    """Train for some epochs."""
    rows, summary = curve(
        islice(steps, epochs), lambda table: {"table": table}, finite=False
    )
    lost = [row["rows_lost"] for row in rows if "rows_lost" in row]
    changed = sum(row.get("rows_changed", 0.0) for row in rows)
    return Turn(
        sum(summary.get(phase, 0.0) for phase in UPDATING),
        summary.get("plan_seconds", 0.0),
        summary.get("table"),
        sum(lost) / max(changed, 1) if lost else None,
    )


def speedup(base: Sequence[Turn], turns: Sequence[Turn]) -> float:
    """Return the median speed-up over the turns of the same round."""
    pairs = zip(base, turns, strict=True)
    return float(np.median([one.seconds / other.seconds for one, other in pairs]))


def seconds(turns: Sequence[Turn]) -> float:
    """Return the median seconds of a turn."""
    return float(np.median([turn.seconds for turn in turns]))


def objective(problem: Problem, table: np.ndarray | None) -> float:
    """Return the objective of a table."""
    return problem.kernel.model.objective(table, problem.kernel.data)


def study(
    comm: CountedComm,
    values: flags.FlagValues,
    path: Path,
    report: ModuleType,
    rows: Iterable[Row],
    claims: Sequence[Claim],
) -> dict[str, Any]:
    """Write the run folder of a study; return the summary on rank 0.

    comm: the ranks.
    values: the flags.
    path: the run folder.
    report: has the columns of each kind of rows (KINDS), `drawn` and `summarised`.
    rows: the rows, each measured when it is pulled.
    claims: what the rows are judged by.
    """
    shown = writers.tables(report.KINDS, {}, key="kind")
    with writing.first(path, values, comm, shown, claims=claims) as writer:
        kept: list[Row] = []
        for row in rows:
            writer.row(row)
            kept.append(row)
        if comm.rank:
            return {}
        summary = report.summarised(kept)
        report.drawn(path, kept)
        writer.summary(summary)
    return summary
