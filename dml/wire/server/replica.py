"""A worker's copy of the table: rows that it has read, updated by its own gradients.

    clock      3        4        5        6        staleness s = 2, read at clock 3
    copy       read  ── own g ── own g ── read     at 6 a row needs all clocks before 4

A row is read again when its copy lacks clocks that it must have (older than the
worker's clock by more than s), or when it was read `pull_period` clocks ago. Between
two reads the worker's own gradients update the copy: a read returns them too (Ho 2013).
"""

import math
from typing import NamedTuple

import numpy as np

from dml.types import Shard
from dml.wire.comm.tags import Tag
from dml.wire.reducers.rows import Keys, indices, length
from dml.wire.server.client import Client, PendingPull, PulledRows
from dml.wire.server.consistency import Consistency
from dml.wire.server.header import WORDS

NEVER = -1 << 40


class Own(NamedTuple):
    """The change of the copy by one of this worker's gradients."""

    push: int  # number of the push that sends it
    rows: Keys
    delta: np.ndarray
    servers: list[int]  # servers of these rows


class Reading(NamedTuple):
    """A read of rows in progress."""

    rows: Keys
    pull: PendingPull | None


class Replica:
    """A copy of all rows; `own` updates it by the worker's own gradients."""

    def __init__(
        self,
        client: Client,
        table_TxD: np.ndarray,
        rule: Consistency,
        own: Shard | None,
    ):
        self.client, self.rule, self.own = client, rule, own
        self.table = own.values if own else table_TxD
        self.copied = own is not None  # otherwise at the first rows
        servers, rows = len(client.ranks), len(table_TxD)
        # A rule that reads all rows again needs no record of earlier reads.
        self.records = rule.push_based or rule.pull_period != 1
        # For each row: the complete clock, the own clock and the version of its last
        # read. One number for all rows until rows arrive, since many workers read none.
        self.complete = np.broadcast_to(np.int64(NEVER), rows)
        self.fetched = np.broadcast_to(np.int64(NEVER), rows)
        self.version = np.broadcast_to(np.int64(0), rows)
        # For each server: clock and version of all rows ever read, by its changes.
        self.changes = np.full((servers, 2), NEVER)  # clock, version
        self.owned: list[Own] = []
        self.pushes = 0
        self.applied = np.zeros(
            servers, np.int64
        )  # pushes, in all rows that will arrive
        self.clock = 0  # latest complete clock of any server

    # Reading.

    def begin_read(self, rows: Keys, clock: int) -> Reading:
        """Start to read the rows that are too old at this worker's clock."""
        need = clock - self.rule.staleness
        if self.rule.push_based:
            self.drain()
        old = self.due(rows, need, clock)
        if old is None:
            return Reading(rows, None)
        return Reading(old, self.client.begin_pull(old, int(max(-1, need))))

    def due(self, rows: Keys, need: float, clock: int) -> Keys | None:
        """Return the rows to be read again; all of them where keys are a range.

        A worker whose part of the minibatch is empty reads no rows, to wait for the
        clock.
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
                while self.oldest(part.server, rows, part.selection) < need:
                    self.receive_changes(part.server)
        if self.rule.push_based or self.rule.pull_period != 1:
            self.set_versions(rows)

    def install(self, rows: Keys, read: PulledRows, clock: int) -> None:
        """Write rows that have arrived into the copy."""
        if length(rows):
            self.allocate()
            self.table[rows] = read.values
        if length(rows) and self.records:
            self.fetched[rows] = clock
        for part in self.client.parts(rows):
            if part.server in read.servers:
                complete, version, applied, _ = read.words[part.server].tolist()
                row_numbers = within(rows, part.selection)
                if length(row_numbers) and self.records:
                    self.complete[row_numbers], self.version[row_numbers] = (
                        complete,
                        version,
                    )
                self.clock = max(self.clock, complete)
                self.add_own(row_numbers, applied)
                if not self.rule.push_based:  # else older changes may be in transit
                    self.prune(part.server, applied)

    def allocate(self) -> None:
        """Allocate the copy and the record of reads at the first rows."""
        if not self.copied:
            self.table, self.copied = self.table.copy(), True
        if self.records and not self.complete.flags.writeable:
            self.complete = self.complete.copy()
            self.fetched = self.fetched.copy()
            self.version = self.version.copy()

    def oldest(self, server: int, rows: Keys, which: Keys) -> float:
        """Return the latest clock that is complete in all these rows of a server."""
        complete = self.complete[within(rows, which)]
        least = int(complete.min()) if len(complete) else NEVER
        changed = int(self.changes[server, 0])
        return max(least, changed) if len(complete) else math.inf

    def set_versions(self, rows: Keys) -> None:
        """Set the versions that the next push sends: of the rows that were read."""
        for part in self.client.parts(rows):
            versions = self.version[within(rows, part.selection)]
            if len(versions):
                oldest = max(int(versions.min()), int(self.changes[part.server, 1]))
                self.client.versions[part.server] = oldest

    # Changed rows that servers send without a request.

    def drain(self) -> None:
        """Receive all changes that have arrived."""
        for server, rank in enumerate(self.client.ranks):
            while self.client.comm.Iprobe(rank, Tag.CHANGED):
                self.receive_changes(server)

    def finish(self) -> None:
        """Receive the remaining changes, after this worker's END."""
        if self.rule.push_based:
            for server in range(len(self.client.ranks)):
                while self.receive_changes(server):
                    pass
            # later changes are not sent to this worker
            self.complete = np.full(len(self.complete), NEVER)
            self.changes[:] = NEVER

    def receive_changes(self, server: int) -> bool:
        """Wait for a server's next changes and copy them; False after the last."""
        words = np.zeros(WORDS, np.int64)
        self.receive(words, server)
        self.client.changes[server] += 1
        clock, version, applied, count = words.tolist()
        if count < 0:
            return False
        width = self.table.shape[1]
        numbers_of_rows = indices(self.client.partition.rows_of(server))
        if count < len(numbers_of_rows):
            received = np.empty(count * (1 + width), np.float32)
            self.receive(received, server)
            numbers_of_rows = numbers_of_rows[received[:count].view(np.int32)]
            values = received[count:].reshape(count, width)
        else:
            values = self.client.memory(count)
            self.receive(values, server)
        newer = self.version[numbers_of_rows] <= version
        rows = numbers_of_rows[newer]
        self.allocate()
        self.table[rows] = values[newer]
        self.changes[server] = clock, version
        self.clock = max(self.clock, clock)
        self.add_own(rows, applied)
        self.prune(server, applied)
        return True

    def receive(self, buffer: np.ndarray, server: int) -> None:
        client = self.client
        request = client.comm.Irecv(buffer, client.ranks[server], Tag.CHANGED)
        client.wait([request])

    # This worker's own gradients.

    def add_gradient(self, rows: Keys, grads: np.ndarray, share: float) -> None:
        """Update the copy by this worker's own gradient, which the next push sends."""
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
            self.owned.append(Own(self.pushes + 1, rows, delta, servers))

    def add_own(self, rows: Keys, applied: int) -> None:
        """Add to rows just read the own gradients that the server has not applied."""
        missing = [each for each in self.owned if each.push > applied]
        if not missing:
            return
        row_numbers = indices(rows)
        place = np.full(len(self.table), -1, np.int32)
        for each in missing:
            own_rows = indices(each.rows)
            place[own_rows] = np.arange(len(own_rows), dtype=np.int32)
            positions = place[row_numbers]
            self.table[row_numbers[positions >= 0]] += each.delta[
                positions[positions >= 0]
            ]
            place[own_rows] = -1

    def prune(self, server: int, applied: int) -> None:
        """Drop gradients that all rows from this server will include."""
        self.applied[server] = applied
        self.owned = [
            each
            for each in self.owned
            if (self.applied[each.servers] < each.push).any()
        ]


def within(rows: Keys, which: Keys) -> Keys:
    """Return the rows at the positions `which`."""
    if isinstance(rows, slice):
        if isinstance(which, slice):
            return slice(rows.start + which.start, rows.start + which.stop)
        return rows.start + which
    return rows[which]
