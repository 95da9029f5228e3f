"""Training on parameter servers, one epoch after another.

An epoch is a call of `server`, which begins with a barrier, and an all-reduce of its
counts. Between epochs servers keep their rows and the state of their update rule.
Workers that update a copy of the rows keep the state of the copy's update rule.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import count, islice
from typing import Any

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.server.report import WORK, Report
from dml.strategies.server.server import Setup, collect_table, row_partition, server
from dml.types import CountedComm, Problem, Shard, Step
from dml.types.ranges import Every, checked
from dml.wire.collectives import tree_allreduce
from dml.wire.server.refusals import Refusal

MAX_STALENESS = 1023  # in updates; greater staleness is counted as this
NO_REFUSAL = Refusal("", 0)


@partial(checked, name="server")
def train_epochs(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Callable[[np.ndarray], Any],
    *,
    comm: CountedComm,
    timer: Timer,
    setup: Setup,
    every: Every,
    state: Sequence[np.ndarray] = (),
    summary: dict[str, Any] | None = None,
) -> Iterator[Step]:
    """Train a table on servers; yield a Step on all ranks after each epoch.

    Args:
      problem: Problem of a table.
      batches: Indices of each clock's global minibatch, equal on all ranks.
      update: Update rule of rows, with arrays of state in the shape of the rows.
      comm: Workers and servers.
      timer: Measures the phases.
      setup: Roles of the ranks, settings of servers and workers.
      every: Number of clocks in an epoch.
      state: State of the update rule in an earlier Step.
      summary: Receives the totals of all epochs so far: staleness, late gradients,
        share of time spent waiting.
    """
    roles, batches = setup.roles, iter(batches)
    split = row_partition(comm, problem, len(roles.servers))
    server_index = roles.server(comm.rank)
    rows = slice(0) if server_index is None else split.rows_of(server_index)
    shard = restore_shard(
        update, problem.params[rows], [array[rows] for array in state]
    )
    make_copy_shard = cache(partial(restore_shard, update, problem.params, state))

    def copy_update(table_TxD: np.ndarray) -> Shard:
        copy_shard = make_copy_shard()  # the same object in all epochs
        copy_shard.values = table_TxD
        return copy_shard

    setup = setup._replace(copy_update=copy_update)
    all_counts = np.zeros(MAX_STALENESS + 2 + len(WORK) + comm.size)
    number = 0  # of clocks so far
    for epoch in count(1):
        bytes_before, start, report = comm.bytes_sent, timer.clock(), Report()
        minibatches = [*islice(batches, every)]
        if not minibatches:
            return
        totals = np.zeros(2)  # summed loss, number of examples
        seconds = defaultdict[str, float](float)
        for step in server(
            problem,
            minibatches,
            lambda rows: shard,
            comm=comm,
            timer=timer,
            setup=setup,
            report=report,
        ):
            totals += step.loss * step.examples, step.examples
            for phase, spent in step.seconds.items():
                seconds[phase] += spent
        with timer("wait"):
            tree_allreduce(comm, totals)
            counts = np.append(staleness_counts(report), refused_counts(comm, report))
            tree_allreduce(comm, counts)
        all_counts += counts
        if summary is not None:
            summary |= summarize(all_counts[: -comm.size])
            refused = all_counts[-comm.size :]
            summary["refused_messages"] = int(refused.sum())
            summary["refused_ranks"] = np.flatnonzero(refused).tolist()
        seconds["wait"] += timer.lap()["wait"]
        # the setup of an epoch and the work of a server are not in a phase
        seconds["wire"] += timer.clock() - start - sum(seconds.values())
        number += len(minibatches)
        yield Step(
            number=number,
            loss=float(totals[0] / totals[1]),
            params=partial(collect_table, comm, roles, split, lambda: shard.values),
            examples=problem.examples,
            seconds=dict(seconds),
            words_sent=(comm.bytes_sent - bytes_before) // 4,
            epoch=epoch,
            state=lambda: [
                collect_table(comm, roles, split, partial(np.asarray, array))
                for array in shard.state
            ],
        )


def restore_shard(
    update: Callable[[np.ndarray], Any], values: np.ndarray, state: Sequence[np.ndarray]
) -> Any:
    """Return the Shard of these rows, with the state of an earlier Step if given."""
    shard = update(values)
    for array, saved in zip(shard.state if state else (), state, strict=True):
        array[...] = saved
    return shard


def staleness_counts(report: Report) -> np.ndarray:
    """Return number of gradients by staleness, sums of WORK, number of late gradients.

    The result is one array, for a sum over ranks. Gradients without rows and late
    gradients have no staleness.
    """
    log = report.log
    staleness = [entry.staleness for entry in log if entry.rows and not entry.late]
    counts = np.bincount(np.minimum(np.array(staleness, np.int64), MAX_STALENESS))
    counts = np.append(counts, np.zeros(MAX_STALENESS + 1 - len(counts)))
    late = sum(entry.late for entry in log)
    return np.concatenate([counts, report.work.sum(0), [late]])


def refused_counts(comm: CountedComm, report: Report) -> list[int]:
    """Return the number of refused messages of each rank."""
    refusals = [report.refused.get(rank, NO_REFUSAL) for rank in range(comm.size)]
    return [refusal.messages for refusal in refusals]


def summarize(all_counts: np.ndarray) -> dict[str, Any]:
    """Return the counts of all ranks and epochs by name.

    all_counts: sum of the results of `staleness_counts`.
    """
    counts = np.trim_zeros(all_counts[: MAX_STALENESS + 1], "b")
    work = dict(zip(WORK, all_counts[MAX_STALENESS + 1 :].tolist(), strict=False))
    seconds = work["computed"] + work["waited"]
    return {
        "staleness": counts.astype(int).tolist(),
        "staleness_mean": float(np.arange(len(counts)) @ counts) / (counts.sum() or 1),
        "staleness_max": max(0, len(counts) - 1),
        "late": int(all_counts[-1]),
        "idle_share": work["waited"] / (seconds or 1),
        **{name: int(work[name]) for name in ("keys_sent", "keys_known", "nonfinite")},
    }
