"""A parameter server: rows of a table, updated by the gradients of all workers.

pulls     ──► answered when all gradients of the clocks that they need are applied
gradients ──► by arrival, or collected and summed in worker order when a clock closes
              ──► combine ──► update ──► rows, one version newer
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dml.types import ANY, Combine, Comm, Rows, Shard, Status
from dml.wire.comm.tags import Tag
from dml.wire.reducers.rows import Keys, indices, length, sum_rows
from dml.wire.server.consistency import Consistency
from dml.wire.server.header import (
    BITS,
    CLOCK,
    END,
    KEYS,
    NBYTES,
    PULL,
    PUSH,
    Head,
    bits_end,
    is_separate,
    keys_end,
    longest,
    read,
)
from dml.wire.server.replies import Replies, State

NOTHING = np.empty(0, np.int32)


class Push(NamedTuple):
    """Gradients of some rows, from one worker."""

    worker: int
    head: Head
    at: Keys
    grads: np.ndarray


class Applied(NamedTuple):
    """The log entry of a gradient: applied, or late and dropped."""

    seconds: float
    worker: int
    clock: int
    staleness: int  # updates between the rows that it was computed from and its own
    loss: float
    rows: int  # of this server
    late: int


class Server:
    """One server: its rows, the clocks of its workers, waiting pulls and gradients.

    comm: the ranks.
    shard: the rows of this server and their update.
    workers: their number; they are ranks 0 to workers - 1.
    rule: when gradients are applied and pulls answered.
    on_clock: called with the sum of all workers' clocks whenever it grows.
    combine: the sum of an update's gradients; see `Reducer`.

    `serve` handles messages until every worker has ended, `handle` a single one.
    """

    def __init__(
        self,
        comm: Comm,
        shard: Shard,
        workers: int,
        rule: Consistency,
        on_clock: Callable[[int], object] = lambda clocks: None,
        combine: Combine = sum_rows,
    ):
        self.comm, self.shard, self.rule, self.combine = comm, shard, rule, combine
        self.workers, self.on_clock = workers, on_clock
        self.rows, self.width = shard.values.shape
        self.inbox = np.empty(longest(self.rows, self.width), np.uint8)
        self.body = np.empty(shard.values.size, np.float32)
        self.clock = self.version = 0  # closed clocks, updates
        self.clocks = [0] * workers  # ended, of each worker
        self.total = 0  # their sum
        self.finished_workers = 0  # workers that have ended the open clock
        self.applied = [0] * workers  # pushes of each worker, applied or late
        self.ended: set[int] = set()
        self.status = Status()
        self.log: list[Applied] = []
        self.pending: list[Push] = []  # not yet applied, in order of arrival
        self.waiting: list[tuple[int, int, Keys]] = []  # pulls: worker, clock, keys
        self.lists: list[dict[int, np.ndarray]] = [{} for _ in range(workers)]
        self.out = Replies(comm, shard, workers, rule.push_based)

    def serve(self) -> None:
        """Handle messages until every worker has ended."""
        while len(self.ended) < self.workers:
            self.handle_next()
        self.settle()

    def handle_next(self) -> None:
        """Wait for the next message and handle it."""
        self.comm.Recv(self.inbox, ANY, Tag.SERVER, self.status)
        self.handle(self.status.source, self.inbox)

    def settle(self) -> None:
        """Apply the pending gradients; return when all sent messages have arrived."""
        self.ended.clear()
        self.flush(sorted(self.pending, key=by_clock_and_worker))
        self.pending = []
        self.out.settle()

    def handle(self, worker: int, message: np.ndarray) -> None:
        """Handle one message."""
        head = read(message)
        self.out.release_received(worker, head)
        if head.kind & (PULL | PUSH):
            at = self.keys(worker, head, message)
            if head.kind & PULL and head.clock <= self.clock:
                self.out.reply(worker, at, self.state(worker))
            elif head.kind & PULL:
                self.waiting.append((worker, head.clock, at))
            else:
                self.accept(self.push(worker, head, at, message))
        if head.kind & CLOCK:
            before = self.clock
            self.end_clock(worker, head.clock + 1)
            if self.clock > before:
                self.answer_pulls()
        if head.kind & END:
            self.ended.add(worker)
            if self.rule.push_based:
                self.out.send_last(worker)

    def keys(self, worker: int, head: Head, message: np.ndarray) -> Keys:
        """Return the rows of a message; store a new list of keys."""
        if not head.rows:  # from a worker that waits for a clock
            return NOTHING
        if head.start >= 0:
            return slice(head.start, head.start + head.rows)
        known = self.lists[worker]
        if head.kind & KEYS:
            keys = message[NBYTES : NBYTES + 4 * head.rows].view(np.int32)
            known[-1 - head.start] = keys.copy()
        return known[-1 - head.start]

    # Gradients.

    def push(self, worker: int, head: Head, at: Keys, message: np.ndarray) -> Push:
        """Read a push, whose values follow its head or are a second message."""
        start = bits_end(head.rows, head.kind)
        if head.kind & BITS:
            bits = message[keys_end(head.rows, head.kind) : start]
            has = np.unpackbits(bits, count=head.rows).view(bool)
            at = indices(at)[has]
        rows = length(at)
        if is_separate(rows, self.width):
            flat = self.body[: rows * self.width]
            self.comm.Recv(flat, worker, Tag.GRADIENTS)
        else:
            stop = start + 4 * rows * self.width
            flat = message[start:stop].view(np.float32)
        return Push(worker, head, at, flat.reshape(rows, self.width))

    def accept(self, push: Push) -> None:
        """Apply a gradient, or store it until its update is complete."""
        if self.rule.aggregation_count == 1:
            self.flush([push])
        elif not self.rule.aggregation_count and push.head.clock < self.clock:
            self.log_gradient(push, late=1)
        else:
            # a copy, as the inbox is used again
            self.pending.append(push._replace(grads=push.grads.copy()))
            if len(self.pending) == self.rule.aggregation_count:
                self.flush(self.pending)
                self.pending = []

    def end_clock(self, worker: int, clock: int) -> None:
        """Count the end of a worker's clock; close the clocks that are complete."""
        self.finished_workers += self.clocks[worker] <= self.clock < clock
        self.total += clock - self.clocks[worker]
        self.clocks[worker] = clock
        while self.finished_workers >= self.workers - self.rule.backups:
            if not self.rule.aggregation_count:
                # order matters: by worker, not by arrival, so that sums have equal bits
                order = sorted(self.pending, key=by_clock_and_worker)
                due = [push for push in order if push.head.clock <= self.clock]
                self.pending = order[len(due) :]
                self.flush(due)
            self.clock += 1
            self.finished_workers = sum(each > self.clock for each in self.clocks)
            if self.rule.push_based:
                self.send_changes()
        self.on_clock(self.total)

    def flush(self, pushes: list[Push]) -> None:
        """Apply gradients as one update."""
        if not pushes:
            return
        for push in pushes:
            if self.rule.staleness_scaled:
                stale = self.version - push.head.version
                np.divide(push.grads, np.float32(max(1, stale)), out=push.grads)
            self.log_gradient(push)
        share = round(sum(push.head.weight for push in pushes), 9)  # 1 with all terms
        at, grads = self.combine([Rows(push.at, push.grads) for push in pushes])
        if self.rule.averaged and share:
            grads, share = np.divide(grads, np.float32(share)), 1.0
        self.out.before_update()
        self.shard.update(at, grads, share)
        if self.rule.push_based:
            self.out.dirty[at] = True
        self.version += 1

    def log_gradient(self, push: Push, late: int = 0) -> None:
        """Log a gradient that is applied now, or is late."""
        head, stale = push.head, self.version - push.head.version
        self.applied[push.worker] += 1
        now = self.comm.Wtime()
        fields = push.worker, head.clock, stale, head.loss, length(push.at)
        self.log.append(Applied(now, *fields, late))

    # Rows.

    def answer_pulls(self) -> None:
        """Answer the pulls whose clocks are complete."""
        ready = [each for each in self.waiting if each[1] <= self.clock]
        if ready:
            self.waiting = [each for each in self.waiting if each[1] > self.clock]
            for worker, _, at in sorted(ready, key=lambda each: each[0]):
                self.out.reply(worker, at, self.state(worker))

    def send_changes(self) -> None:
        """Send all workers the rows that changed since the last clock."""
        for worker in range(self.workers):
            if worker not in self.ended:
                self.out.send_changes(worker, self.state(worker))
        self.out.dirty[:] = False

    def state(self, worker: int) -> State:
        return State(self.clock, self.version, self.applied[worker])


def by_clock_and_worker(push: Push) -> tuple[int, int]:
    return push.head.clock, push.worker
