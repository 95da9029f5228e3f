"""Measurements of a run on parameter servers, of each rank and of all ranks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.strategies.server.replicated import first_with_rows
from dml.strategies.server.roles import Roles
from dml.strategies.server.workers import Counts
from dml.types import CountedComm
from dml.wire.collectives.gather_arrays import gather_arrays
from dml.wire.comm.surviving import with_survivors
from dml.wire.plans.partition import Partition, imbalance
from dml.wire.server.client import Client
from dml.wire.server.refusals import Refusal
from dml.wire.server.server import Server
from dml.wire.server.updates import Applied


class Snapshot(NamedTuple):
    """A copy of the table during the run."""

    seconds: float  # time of the copy
    clocks: float  # number of ended clocks, mean over workers
    updates: int
    values: np.ndarray  # rows of one server, or all rows


class Collected(NamedTuple):
    """The measurements of all ranks."""

    table: np.ndarray  # T rows of D columns, at the end
    log: np.ndarray  # row per gradient and server: fields of Applied, server index
    snapshots: list[Snapshot]  # of all rows
    work: np.ndarray  # row per worker: columns of WORK
    summary: dict[str, Any]


# Measurements of a worker: seconds, then counts.
WORK = (
    *("computed", "waited", "rows_pulled", "rows_pushed"),
    *("keys_sent", "keys_known", "nonfinite", "offered", "filtered", "skipped_clocks"),
)
COUNTS = WORK[2:]


class Report:
    """The measurements of one rank, filled by the strategy."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.log: list[Applied] = []
        self.snapshots: list[Snapshot] = []
        self.values = np.empty((0, 0), np.float32)
        self.version = 0
        self.work = np.zeros((0, len(WORK)))
        self.refused: dict[int, Refusal] = {}  # by rank, on a server
        self.dead: set[int] = set()  # workers that died before their end, on a server
        # on a worker with replicated servers: seconds of the send of each message and
        # of its acknowledgement
        self.acknowledged = np.zeros((0, 2))

    def add_snapshot(self, seconds: float, clocks: float, server: Server) -> None:
        """Copy the rows of a server."""
        copy = server.shard.values.copy()
        self.snapshots.append(Snapshot(seconds, clocks, server.version, copy))

    def record_server(self, server: Server) -> None:
        """Store the rows, the log and the version of a server after the run."""
        self.values, self.log = np.asarray(server.shard.values), server.log
        self.version = server.version
        self.refused = dict(server.refused)
        self.dead = set(server.dead)

    def record_worker(self, client: Client) -> None:
        """Store the measurements of a worker after the run."""
        values = vars(client) | vars(client.outbox) | vars(self.counts)
        self.work = np.array([[values[name] for name in WORK]], float)


def collect_living_reports(
    comm: CountedComm, roles: Roles, split: Partition, width: int, report: Report
) -> Collected | None:
    """Gather the reports of the living ranks on the first of them; collective.

    The arguments are those of `collect_reports`, with the ranks of all.
    """

    def collect(living: CountedComm, ranks: Sequence[int]) -> Collected | None:
        return collect_reports(living, roles, split, width, report, ranks=ranks)

    return with_survivors(comm, collect)


def collect_reports(
    comm: CountedComm,
    roles: Roles,
    split: Partition,
    width: int,
    report: Report,
    *,
    ranks: Sequence[int] | None = None,
) -> Collected | None:
    """Gather all reports on rank 0; return None elsewhere; collective.

    Args:
      comm: Workers and servers.
      roles: Which ranks are workers and which are servers.
      split: Partition of the rows among servers.
      width: Number of columns of the table.
      report: Measurements of this rank.
      ranks: Ranks of the members of `comm` among all; None: all ranks.
    """
    ranks = range(comm.size) if ranks is None else ranks
    log = np.array(report.log, float).reshape(-1, len(Applied._fields))
    # of each snapshot: seconds, clocks, updates; and the rows
    moments = np.array([entry[:3] for entry in report.snapshots], float).reshape(-1, 3)
    copies = [snapshot.values.reshape(-1) for snapshot in report.snapshots]
    flat_copies = np.concatenate([np.empty(0, np.float32), *copies])
    refused = sum(refusal.messages for refusal in report.refused.values())
    totals = np.array([[comm.bytes_sent // 4, report.version, refused]], float)
    refusals = describe_refusals(ranks[comm.rank], report.refused)
    gathered = gather_arrays(
        comm,
        report.values.reshape(-1),
        log,
        moments,
        flat_copies,
        report.work,
        totals,
        np.frombuffer(refusals.encode(), np.uint8),
        np.array(sorted(report.dead), np.int64),
    )
    if gathered is None:
        return None
    # lists with an array of each rank
    values, logs, all_moments, all_copies, works, all_totals, texts, dead = gathered

    def assemble(parts: Sequence[np.ndarray]) -> np.ndarray:
        return assemble_table(split, [part.reshape(-1, width) for part in parts])

    servers = first_with_rows(roles, ranks, values)
    log = np.concatenate(
        [
            np.column_stack([logs[rank], np.full(len(logs[rank]), index)])
            for index, rank in enumerate(servers)
        ]
    )
    snapshots = assemble_snapshots(
        [all_moments[rank] for rank in servers],
        [all_copies[rank] for rank in servers],
        assemble,
    )
    work = np.concatenate(works)
    words, updates, refused_messages = np.concatenate(all_totals).T
    summary = summarize(log, work) | {
        "words_sent": int(words.sum()),
        "updates": int(updates[servers[0]]),
        "refused_messages": int(refused_messages.sum()),
        "refused": "; ".join(np.concatenate(texts).tobytes().decode().splitlines()),
        "dead_servers": len(server_ranks(roles).difference(ranks)),
        "dead_workers": len(np.unique(np.concatenate(dead))),
        "rows_imbalance": imbalance(split),
    }
    table = assemble([values[rank] for rank in servers])
    return Collected(table, log, snapshots, work, summary)


def server_ranks(roles: Roles) -> set[int]:
    """Return the ranks of all servers, with their replicas and spares."""
    return {rank for chain in roles.chains() for rank in chain.members}


def describe_refusals(server: int, refused: Mapping[int, Refusal]) -> str:
    """Return a line for each rank whose messages a server has refused.

    Args:
      server: Rank of the server.
      refused: Refusals by rank.
    """
    return "".join(
        f"rank {server} refused {refusal.messages} messages of rank {rank}, the first "
        f"for {refusal.reason}\n"
        for rank, refusal in sorted(refused.items())
    )


def assemble_snapshots(
    moments: Sequence[np.ndarray],
    copies: Sequence[np.ndarray],
    assemble: Callable[[Sequence[np.ndarray]], np.ndarray],
) -> list[Snapshot]:
    """Return the snapshots of all rows.

    Args:
      moments: For each server, a row per snapshot: seconds, clocks, updates.
      copies: For each server, the rows in all snapshots as one flat array.
      assemble: rows of each server -> all rows.
    """
    snapshots = []
    count = min(map(len, moments))  # a server may have one snapshot more than another
    for k, (seconds, clocks, updates) in enumerate(moments[0][:count].tolist()):
        rows = [
            flat.reshape(len(times), -1)[k]
            for flat, times in zip(copies, moments, strict=True)
        ]
        snapshots.append(Snapshot(seconds, clocks, int(updates), assemble(rows)))
    return snapshots


def assemble_table(split: Partition, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the table from the rows of each server."""
    table_TxD = np.empty((int(split.edges[-1]), parts[0].shape[1]), np.float32)
    for server, part in enumerate(parts):
        table_TxD[split.rows_of(server)] = part
    return table_TxD


def summarize(log: np.ndarray, work: np.ndarray) -> dict[str, float]:
    """Return the totals and means of a run by name.

    Args:
      log: Row per gradient and server, as in Collected.
      work: Row per worker, as in Collected.
    """
    column = dict(zip((*Applied._fields, "server"), log.T, strict=True))
    late, on_first_server = column["late"] > 0, column["server"] == 0
    staleness = column["staleness"][~late & (column["rows"] > 0)]
    computed, waited = work[:, 0].sum(), work[:, 1].sum()
    counts = work[:, 2:].sum(0)
    return {
        "staleness_mean": float(staleness.mean()) if len(staleness) else 0.0,
        "staleness_max": int(staleness.max()) if len(staleness) else 0,
        "gradients": int((~late & on_first_server).sum()),
        "late": int((late & on_first_server).sum()),
        "idle_share": float(waited / ((computed + waited) or 1)),
        **{name: int(n) for name, n in zip(COUNTS, counts, strict=True)},
    }
