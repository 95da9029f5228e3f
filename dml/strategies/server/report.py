"""Measurements of a run on parameter servers, of each rank and of all ranks."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dml.strategies.server.roles import Roles
from dml.strategies.server.workers import Counts
from dml.types import CountedComm
from dml.wire.collectives.gather_arrays import gather_arrays
from dml.wire.plans.partition import Partition, imbalance
from dml.wire.server.client import Client
from dml.wire.server.server import Applied, Server


class Snapshot(NamedTuple):
    """A copy of the table during the run."""

    seconds: float
    clocks: float  # mean over workers
    updates: int
    values: np.ndarray


class Collected(NamedTuple):
    """The measurements of all ranks."""

    table: np.ndarray  # TxD, at the end
    log: np.ndarray  # row per gradient and server: fields of Applied, server
    snapshots: list[Snapshot]  # of the full table
    work: np.ndarray  # row per worker: columns of WORK
    summary: dict[str, float]


WORK = (
    *("computed", "waited", "rows_pulled", "rows_pushed"),
    *("keys_sent", "keys_known", "nonfinite", "offered", "sifted", "skipped_clocks"),
)
TOTALS = WORK[2:]


class Report:
    """The measurements of one rank, filled by the strategy."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.log: list[Applied] = []
        self.snapshots: list[Snapshot] = []
        self.values = np.empty((0, 0), np.float32)
        self.version = 0
        self.work = np.zeros((0, len(WORK)))

    def snapshot(self, seconds: float, clocks: float, server: Server) -> None:
        copy = server.shard.values.copy()
        self.snapshots.append(Snapshot(seconds, clocks, server.version, copy))

    def served(self, server: Server) -> None:
        self.values, self.log = np.asarray(server.shard.values), server.log
        self.version = server.version

    def worked(self, client: Client) -> None:
        values = vars(client) | vars(client.outbox) | vars(self.counts)
        self.work = np.array([[values[name] for name in WORK]], float)


def collected(
    comm: CountedComm, roles: Roles, split: Partition, width: int, report: Report
) -> Collected | None:
    """Gather all reports on rank 0; return None elsewhere; collective.

    Args:
      comm: Ranks.
      roles: Which ranks are workers and which are servers.
      split: Partition of the rows among servers.
      width: Number of columns of the table.
      report: Measurements of this rank.
    """
    log = np.array(report.log, float).reshape(-1, len(Applied._fields))
    moments = np.array([each[:3] for each in report.snapshots], float).reshape(-1, 3)
    copies = [each.values.reshape(-1) for each in report.snapshots]
    flat = np.concatenate([np.empty(0, np.float32), *copies])
    ends = np.array([[comm.bytes_sent // 4, report.version]], float)
    gathered = gather_arrays(
        comm, report.values.reshape(-1), log, moments, flat, report.work, ends
    )
    if gathered is None:
        return None
    values, logs, times, copies_of, work, ends_of = gathered

    def full(parts: Sequence[np.ndarray]) -> np.ndarray:
        return joined(split, [part.reshape(-1, width) for part in parts])

    ranks = roles.servers
    first = times[ranks[0]].tolist()
    moments_of = min(len(times[rank]) for rank in ranks)
    snapshots = [
        Snapshot(
            *(seconds, clocks, int(updates)),
            full([copies_of[r].reshape(len(times[r]), -1)[k] for r in ranks]),
        )
        for k, (seconds, clocks, updates) in enumerate(first[:moments_of])
    ]
    every = [
        np.column_stack([logs[rank], np.full(len(logs[rank]), number)])
        for number, rank in enumerate(ranks)
    ]
    log, totals = np.concatenate(every), np.concatenate(work)
    summary = totalled(log, totals) | {
        "words_sent": int(sum(each[0, 0] for each in ends_of)),
        "updates": int(ends_of[ranks[0]][0, 1]),
        "rows_imbalance": imbalance(split),
    }
    table = full([values[rank] for rank in ranks])
    return Collected(table, log, snapshots, totals, summary)


def joined(split: Partition, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the table from the rows of all servers."""
    table_TxD = np.empty((int(split.edges[-1]), parts[0].shape[1]), np.float32)
    for number, part in enumerate(parts):
        table_TxD[split.rows_of(number)] = part
    return table_TxD


def totalled(log: np.ndarray, work: np.ndarray) -> dict[str, float]:
    """Return the totals and means of a run by name."""
    column = dict(zip((*Applied._fields, "server"), log.T, strict=True))
    late, first = column["late"] > 0, column["server"] == 0
    stale = column["staleness"][~late & (column["rows"] > 0)]
    busy, waited = work[:, 0].sum(), work[:, 1].sum()
    return {
        "staleness_mean": float(stale.mean()) if len(stale) else 0.0,
        "staleness_max": int(stale.max()) if len(stale) else 0,
        "gradients": int((~late & first).sum()),
        "late": int((late & first).sum()),
        "idle_share": float(waited / ((busy + waited) or 1)),
        **{
            name: int(total)
            for name, total in zip(TOTALS, work[:, 2:].sum(0), strict=True)
        },
    }
