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

from dml.runs import folder, results, writers
from dml.runs.writers import Columns, Row
from dml.strategies.server.roles import roles
from dml.strategies.server.server import MakeShard, Setup
from dml.strategies.server.workers import SKIP, WorkerOptions
from dml.types import CountedComm
from dml.wire.comm import first_of_each_host
from dml.wire.server.consistency import Consistency
from studies.server.problems import PROBLEMS
from studies.server.runs import (
    RunResult,
    ServerPlan,
    simulate_single_process,
    train_on_servers,
)

# Diverging runs continue; updates that are not finite are skipped and counted.
SKIP_NONFINITE = WorkerOptions(on_nonfinite=SKIP)
Run = Callable[..., RunResult | None]  # the argument `run` of `trials`, see `compare`


class Case(NamedTuple):
    """One run of a study: its row of the table and its results."""

    row: Row
    result: RunResult


def compare(
    flag_values: flags.FlagValues,
    study: str,
    ranks: int,
    trials: Callable[[CountedComm, Run], Iterator[Case | None]],
    *,
    columns: Columns,
    summarize: Callable[[Sequence[Case]], Row],
    draw: Callable[[Path, Sequence[Case]], None],
    claims: Sequence[Claim],
    conclude: Callable[[results.Run], str],
) -> list[Row]:
    """Compare runs with the parsed flags; return the summaries of this process's ranks.

    Args:
      flag_values: Parsed flags.
      study: Name of the run folder.
      ranks: Number of virtual ranks of a single process.
      trials: (comm, run) -> the cases; None on all ranks except 0. All ranks call
        run(update, rule, worker_options, servers, **plan) for each case: update has
        the factories of the servers' shards and of the workers' updates, rule maps
        the number of workers to a consistency, plan are fields of ServerPlan.
      columns: Columns of the printed table, which has a row for each case.
      summarize: cases -> the summary.
      draw: (run folder, cases) -> None; draws the figures.
      claims: Claims that are judged at the end.
      conclude: Run -> the conclusion.
    """
    defaults = PROBLEMS[flag_values.problem]
    path = folder.path(flag_values.out, study)
    simulate_single_process(flag_values, ranks)
    load = cache(partial(defaults.make, flag_values.seed, 0.0))

    def program(comm: CountedComm) -> Row:
        problem = first_of_each_host(comm, load)
        scale = 1.0
        if not comm.platform.virtual:
            from dml.wire.comm.sleeping import Sleeping

            scale = flag_values.scale  # unit of the sleeps of real ranks
            comm = Sleeping(comm, longest=scale)  # type: ignore[assignment]
        batch = flag_values.batch or defaults.batch
        default_plan = ServerPlan(
            batch, flag_values.clocks, flag_values.seed, scale=scale
        )

        def run(
            update: tuple[MakeShard, MakeShard],
            rule: Callable[[int], Consistency],
            worker_options: WorkerOptions = SKIP_NONFINITE,
            servers: int = flag_values.servers,
            **plan: Any,
        ) -> RunResult | None:
            make_shard, make_worker_update = update
            ranks = roles(comm.size, servers)
            setup = Setup(
                ranks,
                rule(ranks.workers),
                make_worker_update,
                worker_options,
                snapshots=flag_values.snapshots,
            )
            return train_on_servers(
                comm, problem, make_shard, setup, default_plan._replace(**plan)
            )

        cases: list[Case] = []
        table = writers.table(columns, flag_values.wide)
        with writing.run_writer(
            path, flag_values, comm, table, claims=claims, conclude=conclude
        ) as writer:
            for case in trials(comm, run):
                if case:
                    cases.append(case)
                    writer.row(case.row)
            summary = summarize(cases) if cases else {}
            if cases:
                draw(path, cases)
                writer.summary(summary)
        return summary

    return flags.ranks(program, flag_values)
