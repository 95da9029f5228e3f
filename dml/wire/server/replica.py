"""A worker's copy of the table: rows that it has read, updated by its own gradients.

    clock      3         4         5         6         staleness s = 2
    copy       read   ── own g  ── own g  ── read      at clock 6 a row must include
    includes   clocks 0 … 2                            all clocks before 6 - s = 4

At clock c a row must include all clocks before c - s of all workers. It is read again
when its copy does not, or when it was read `pull_period` clocks ago. The worker's own
gradients g update the copy at once, and rows that are read without them (Ho 2013).
"""

import math
from typing import NamedTuple

import numpy as np

from dml.types import Shard
from dml.wire.comm.tags import Tag
from dml.wire.reducers.rows import Keys, indices, length
from dml.wire.server.client import Client, PendingPull, PulledRows
from dml.wire.server.consistency import Consistency
from dml.wire.server.header import REPLY_INTS

NEVER = -1 << 40  # clock of rows that have not been read


class OwnChange(NamedTuple):
    """The change of the copy by one of this worker's gradients."""

    push: int  # number of pushes, including the one that sends the gradient
    rows: Keys
    delta: np.ndarray  # rows after the gradient minus rows before it
    servers: list[int]  # servers of these rows


class Reading(NamedTuple):
    """A read of rows in progress."""

    rows: Keys
    pull: PendingPull | None  # None: no row has to be read


class Replica:
    """A copy of all rows.

    client: connection to the servers.
    table_TxD: start values of the T rows of D columns.
    rule: when rows are read again.
    own: updates the copy by the worker's own gradients; None: they are not added.
    """

    def __init__(
        self,
        client: Client,
        table_TxD: np.ndarray,
        rule: Consistency,
        own: Shard | None,
    ):
        self.client, self.rule, self.own = client, rule, own
        self.table = own.values if own else table_TxD
        self.copied = own is not None  # otherwise copied when the first rows arrive
        servers, rows = len(client.ranks), len(table_TxD)
        # A rule that reads all rows again needs no record of earlier reads.
        self.records_reads = rule.push_based or rule.pull_period != 1
        # For each row, at its last read: number of complete clocks, clock of this
        # worker, version. Each array is a broadcast element until the first rows
        # arrive, since many workers read no rows.
        self.complete = np.broadcast_to(np.int64(NEVER), rows)
        self.fetched = np.broadcast_to(np.int64(NEVER), rows)
        self.version = np.broadcast_to(np.int64(0), rows)
        # For each server: clock and version of its last message of changed rows.
        self.changes = np.full((servers, 2), NEVER)
        self.own_changes: list[OwnChange] = []  # not yet applied by all their servers
        self.pushes = 0  # number of pushes of this worker
        # For each server: number of these pushes in all rows that arrive from now on.
        self.applied = np.zeros(servers, np.int64)
        self.clock = 0  # latest complete clock of any server

    # Reading.

    def begin_read(self, rows: Keys, clock: int) -> Reading:
        """Request the rows that are too old at this worker's clock."""
        need = clock - self.rule.staleness
        if self.rule.push_based:
            self.drain()
        old = self.due(rows, need, clock)
        if old is None:
            return Reading(rows, None)
        return Reading(old, self.client.begin_pull(old, int(max(-1, need))))

    def due(self, rows: Keys, need: float, clock: int) -> Keys | None:
        """Return the rows to be read again; None: no read.

        If one row of a range is too old, the whole range is read again. A worker whose
        part of the minibatch is empty pulls an empty list of rows, to wait for the
        clock.

        rows: rows of the minibatch.
        need: number of clocks that the rows must include.
        clock: clock of this worker.
        """
        if not length(rows):
            return rows if need > 0 else None
        if self.rule.push_based:
            old = self.complete[rows] == NEVER
        else:
            old = self.complete[rows] < need
        old |= self.fetched[rows] <= clock - self.rule.pull_period
        if old.all():
            return rows
        if isinstance(rows, slice):
            return rows if old.any() else None
        return rows[old] if old.any() else None

    def finish_read(self, reading: Reading, rows: Keys, clock: int) -> None:
        """Wait until all rows in the copy are as new as the rule requires."""
        if reading.pull:
            self.install(reading.rows, self.client.finish_pull(reading.pull), clock)
        if self.rule.push_based:
            need = clock - self.rule.staleness
            for part in self.client.parts(rows):
                while self.complete_clock(part.server, rows, part.selection) < need:
                    if not self.receive_changes(part.server):
                        self.client.refuse(part.server)
        if self.records_reads:
            self.set_versions(rows)

    def install(self, rows: Keys, read: PulledRows, clock: int) -> None:
        """Write rows that have arrived into the copy."""
        if length(rows):
            self.allocate()
            self.table[rows] = read.values
        if length(rows) and self.records_reads:
            self.fetched[rows] = clock
        for part in self.client.parts(rows):
            if part.server in read.servers:
                complete, version, applied, _ = read.heads[part.server].tolist()
                server_rows = select(rows, part.selection)
                if length(server_rows) and self.records_reads:
                    self.complete[server_rows] = complete
                    self.version[server_rows] = version
                self.clock = max(self.clock, complete)
                self.add_own_changes(server_rows, applied)
                if not self.rule.push_based:  # else older changes may be in transit
                    self.prune(part.server, applied)

    def allocate(self) -> None:
        """Allocate the copy and the record of reads when the first rows arrive."""
        if not self.copied:
            self.table, self.copied = self.table.copy(), True
        if self.records_reads and not self.complete.flags.writeable:
            self.complete = self.complete.copy()
            self.fetched = self.fetched.copy()
            self.version = self.version.copy()

    def complete_clock(self, server: int, rows: Keys, which: Keys) -> float:
        """Return the number of clocks that all these rows of a server include.

        rows: rows of the minibatch.
        which: positions of the server's rows in `rows`.
        """
        complete = self.complete[select(rows, which)]
        if not len(complete):
            return math.inf
        # after a message of changed rows, all rows read before are as new as it
        return max(int(complete.min()), int(self.changes[server, 0]))

    def set_versions(self, rows: Keys) -> None:
        """Set the version that the next push sends to each server: of its oldest row.

        rows: rows of the minibatch.
        """
        for part in self.client.parts(rows):
            versions = self.version[select(rows, part.selection)]
            if len(versions):
                oldest = max(int(versions.min()), int(self.changes[part.server, 1]))
                self.client.versions[part.server] = oldest

    # Changed rows that servers send without a request.

    def drain(self) -> None:
        """Receive all changes that have arrived."""
        for server, rank in enumerate(self.client.ranks):
            while self.client.comm.Iprobe(rank, Tag.CHANGED):
                if not self.receive_changes(server):
                    self.client.refuse(server)

    def finish(self) -> None:
        """Receive the remaining changes, after this worker's END."""
        if self.rule.push_based:
            for server in range(len(self.client.ranks)):
                while self.receive_changes(server):
                    pass
            # later changes are not sent to this worker: read all rows again
            self.complete = np.full(len(self.complete), NEVER)
            self.changes[:] = NEVER

    def receive_changes(self, server: int) -> bool:
        """Wait for a server's next changed rows and copy them; False after the last."""
        head = np.zeros(REPLY_INTS, np.int64)
        self.receive(head, server)
        self.client.changes[server] += 1
        clock, version, applied, count = head.tolist()
        if count < 0:
            return False
        width = self.table.shape[1]
        rows = indices(self.client.partition.rows_of(server))
        if count < len(rows):
            received = np.empty(count * (1 + width), np.float32)
            self.receive(received, server)
            rows = rows[received[:count].view(np.int32)]
            values = received[count:].reshape(count, width)
        else:
            values = self.client.memory(count)
            self.receive(values, server)
        newer = self.version[rows] <= version
        rows = rows[newer]
        self.allocate()
        self.table[rows] = values[newer]
        self.changes[server] = clock, version
        self.clock = max(self.clock, clock)
        self.add_own_changes(rows, applied)
        self.prune(server, applied)
        return True

    def receive(self, buffer: np.ndarray, server: int) -> None:
        """Receive a part of a message of changed rows."""
        client = self.client
        request = client.comm.Irecv(buffer, client.ranks[server], Tag.CHANGED)
        client.wait([request])

    # This worker's own gradients.

    def add_gradient(self, rows: Keys, grads: np.ndarray, share: float) -> None:
        """Update the copy by this worker's own gradient, which the next push sends.

        rows: rows of the gradient.
        grads: gradient, multiplied by `share`.
        share: share of the minibatch from which the gradient was computed.
        """
        if self.own:
            before = self.table[rows].copy()
            self.own.values = self.table
            self.own.update(rows, grads, share)
            if self.own.values is not self.table:  # optax returns another array
                self.table[:] = self.own.values
            delta = self.table[rows] - before
            servers = [
                part.server for part in self.client.parts(rows) if length(part.local)
            ]
            change = OwnChange(self.pushes + 1, rows, delta, servers)
            self.own_changes.append(change)

    def add_own_changes(self, rows: Keys, applied: int) -> None:
        """Add own changes to rows just read from a server that has not applied them.

        rows: rows just read, of one server.
        applied: number of this worker's pushes that the server has applied.
        """
        missing = [change for change in self.own_changes if change.push > applied]
        if not missing:
            return
        read_rows = indices(rows)
        position = np.full(len(self.table), -1, np.int32)  # of each row in the change
        for change in missing:
            changed_rows = indices(change.rows)
            position[changed_rows] = np.arange(len(changed_rows), dtype=np.int32)
            positions = position[read_rows]
            both = positions >= 0  # rows that are read and changed
            self.table[read_rows[both]] += change.delta[positions[both]]
            position[changed_rows] = -1

    def prune(self, server: int, applied: int) -> None:
        """Drop own changes that all their servers have applied.

        applied: number of this worker's pushes that the server has applied.
        """
        self.applied[server] = applied
        self.own_changes = [
            change
            for change in self.own_changes
            if (self.applied[change.servers] < change.push).any()
        ]


def select(rows: Keys, which: Keys) -> Keys:
    """Return the rows at the positions `which`."""
    if isinstance(rows, slice):
        if isinstance(which, slice):
            return slice(rows.start + which.start, rows.start + which.stop)
        return rows.start + which
    return rows[which]
