"""Training on parameter servers, one epoch after another.

An epoch is a run of `server` that begins and ends with a barrier. Servers keep their
rows and the state of the updates between epochs; so do workers whose copies are
updated.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import count, islice
from typing import Any

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.server.report import WORK, Report
from dml.strategies.server.server import Setup, collected, row_partition, server
from dml.types import CountedComm, Problem, Shard, Step
from dml.wire.collectives import tree_allreduce

STALEST = 1023  # updates; greater staleness is counted as this


def by_epochs(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Callable[[np.ndarray], Any],
    *,
    comm: CountedComm,
    timer: Timer,
    setup: Setup,
    every: int,
    state: Sequence[np.ndarray] = (),
    summary: dict[str, Any] | None = None,
) -> Iterator[Step]:
    """Train a table on servers; yield a Step on all ranks after each epoch.

    Args:
      problem: Problem to train, with one table of rows.
      batches: Indices of each clock's global minibatch, equal on all ranks.
      update: Rule of rows, with arrays of state in the shape of the rows.
      comm: Ranks, workers and servers.
      timer: Measures the phases.
      setup: How ranks share the work.
      every: Number of minibatches in an epoch.
      state: State of the update in an earlier Step.
      summary: Receives the staleness and the waiting share of all epochs.
    """
    roles, batches, number = setup.roles, iter(batches), 0
    split = row_partition(comm, problem, len(roles.servers))
    place = roles.server(comm.rank)
    rows = slice(0) if place is None else split.rows_of(place)
    shard = restored_shard(
        update, problem.params[rows], [array[rows] for array in state]
    )
    replica = cache(partial(restored_shard, update, problem.params, state))

    def own(table_TxD: np.ndarray) -> Shard:
        replica().values = table_TxD
        return replica()

    setup, all_counts = setup._replace(own=own), np.zeros(STALEST + 2 + len(WORK))
    for epoch in count(1):
        sent, start, report = comm.bytes_sent, timer.clock(), Report()
        clocks = [*islice(batches, every)]
        if not clocks:
            return
        totals, seconds = np.zeros(2), defaultdict[str, float](float)
        for step in server(
            problem,
            clocks,
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
            counts = staleness_counts(report)
            tree_allreduce(comm, counts)
        all_counts += counts
        if summary is not None:
            summary |= summary_of(all_counts)
        seconds["wait"] += timer.lap()["wait"]
        # neither connecting nor a server's work is in a phase
        seconds["wire"] += timer.clock() - start - sum(seconds.values())
        number += len(clocks)
        yield Step(
            number=number,
            loss=float(totals[0] / totals[1]),
            params=partial(collected, comm, roles, split, lambda: shard.values),
            examples=problem.examples,
            seconds=dict(seconds),
            words_sent=(comm.bytes_sent - sent) // 4,
            epoch=epoch,
            state=lambda: [
                collected(comm, roles, split, partial(np.asarray, array))
                for array in shard.state
            ],
        )


def restored_shard(
    update: Callable[[np.ndarray], Any], values: np.ndarray, state: Sequence[np.ndarray]
) -> Any:
    """Return the Shard of these rows, with the state of an earlier Step, if any."""
    shard = update(values)
    for array, saved in zip(shard.state if state else (), state, strict=True):
        array[...] = saved
    return shard


def staleness_counts(report: Report) -> np.ndarray:
    """Return numbers of gradients by staleness, sums of WORK, and late gradients.

    Gradients without rows and late gradients have no staleness.
    """
    log = report.log
    stale = [entry.staleness for entry in log if entry.rows and not entry.late]
    counts = np.bincount(np.minimum(np.array(stale, np.int64), STALEST))
    counts = np.append(counts, np.zeros(STALEST + 1 - len(counts)))
    late = sum(entry.late for entry in log)
    return np.concatenate([counts, report.work.sum(0), [late]])


def summary_of(all_counts: np.ndarray) -> dict[str, Any]:
    """Return the counts of all ranks and epochs by name."""
    counts = np.trim_zeros(all_counts[: STALEST + 1], "b")
    work = dict(zip(WORK, all_counts[STALEST + 1 :].tolist(), strict=False))
    busy = work["computed"] + work["waited"]
    return {
        "staleness": counts.astype(int).tolist(),
        "staleness_mean": float(np.arange(len(counts)) @ counts) / (counts.sum() or 1),
        "staleness_max": max(0, len(counts) - 1),
        "late": int(all_counts[-1]),
        "idle_share": work["waited"] / (busy or 1),
        **{name: int(work[name]) for name in ("keys_sent", "keys_known", "nonfinite")},
    }
