"""Studies of parameter servers: comparisons of several runs of one problem.

A study is a command with the flags `problem`, `batch`, `clocks`, `snapshots`, `scale`
and `servers`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from lab import flags, writing
from lab.claims import Claim

from dml.runs import folder as runs
from dml.runs import writers
from dml.runs.writers import Columns, Row
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Make, Setup
from dml.strategies.server.workers import SKIP, WorkerOptions
from dml.types import CountedComm
from dml.wire.comm import first_of_each_host
from dml.wire.server.consistency import Consistency
from studies.server.problems import PROBLEMS
from studies.server.runs import Plan, Ran, ran, virtual_if_alone

GOES_ON = WorkerOptions(
    on_nonfinite=SKIP
)  # diverging runs continue; updates that are not finite are counted
Run = Callable[..., Ran | None]


class Case(NamedTuple):
    """One run of a study: its row of the table and its results."""

    row: Row
    ran: Ran


def compared(
    values: flags.FlagValues,
    study: str,
    ranks: int,
    trials: Callable[[CountedComm, Run], Iterator[Case | None]],
    *,
    columns: Columns,
    summarised: Callable[[Sequence[Case]], Row],
    drawn: Callable[[Path, Sequence[Case]], None],
    claims: Sequence[Claim],
) -> list[Row]:
    """Compare runs with the parsed flags; return the summaries of this process's ranks.

    Args:
      values: Flags.
      study: Name of the run folder.
      ranks: Number of virtual ranks of a single process.
      trials: (comm, run) -> the cases; None on all ranks except 0. All ranks call
        run(factories of shard and update, workers -> consistency, worker_options=,
        servers=, and fields of Plan) for each case.
      columns: Columns of the printed table, which has a row for each case.
      summarised: cases -> the summary.
      drawn: (run folder, cases) -> None; draws the figures.
      claims: Claims that are judged at the end.
    """
    stated, path = PROBLEMS[values.problem], runs.path(values.out, study)
    virtual_if_alone(values, ranks)
    load = cache(partial(stated.make, values.seed, 0.0))

    def program(comm: CountedComm) -> Row:
        problem, scale = first_of_each_host(comm, load), 1.0
        if not comm.platform.virtual:
            from dml.wire.comm.sleeping import Napping

            scale = values.scale  # unit of the sleeps of real ranks
            comm = Napping(comm, longest=scale)  # type: ignore[assignment]
        batch = values.batch or stated.batch
        usual = Plan(batch, values.clocks, values.seed, scale=scale)

        def run(
            update: tuple[Make, Make],
            rule: Callable[[int], Consistency],
            worker_options: WorkerOptions = GOES_ON,
            servers: int = values.servers,
            **plan: Any,
        ) -> Ran | None:
            (make, own), who = update, roles(comm.size, servers)
            every = values.snapshots
            setup = Setup(who, rule(who.workers), own, worker_options, snapshots=every)
            return ran(comm, problem, make, setup, usual._replace(**plan))

        cases: list[Case] = []
        table = writers.table(columns)
        with writing.first(path, values, comm, table, claims=claims) as writer:
            for case in trials(comm, run):
                if case:
                    cases.append(case)
                    writer.row(case.row)
            summary = summarised(cases) if cases else {}
            if cases:
                drawn(path, cases)
                writer.summary(summary)
        return summary

    return flags.ranks(program, values)
