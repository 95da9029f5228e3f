"""A parameter server: rows of a table, updated by the gradients of all workers.

pulls     ──► answered when all gradients of the required clocks are applied
gradients ──► combine ──► update ──► the next version of the rows

Gradients are applied on arrival, or stored until their clock closes and then summed in
the order of the workers. A clock closes when all workers, or all but the backup
workers, have ended it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dml.types import ANY, TOO_LONG, Combine, Comm, Rows, Shard, Status
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
    SLOT,
    Head,
    bits_end,
    is_separate,
    keys_end,
    max_nbytes,
    read,
)
from dml.wire.server.replies import Replies, State
from dml.wire.server.slots import Channel
from dml.wire.server.validation import (
    Malformed,
    check_head,
    check_keys,
)

NO_ROWS = np.empty(0, np.int32)
NO_HEAD = Head(0, 0, 0, 0, 0, 0, 0, 0.0, 0.0)


class Push(NamedTuple):
    """A gradient from one worker."""

    worker: int
    head: Head
    keys: Keys  # rows of this server
    grads: np.ndarray


class Applied(NamedTuple):
    """The log entry of a gradient: applied, or late and dropped."""

    seconds: float  # time at which it was applied or dropped
    worker: int
    clock: int
    staleness: int  # number of updates since the version from which it was computed
    loss: float
    rows: int  # number of the gradient's rows that are on this server
    late: int  # 1: dropped; 0: applied


class Refusal(NamedTuple):
    """The refusal of the messages of a rank."""

    reason: str  # of the first one
    messages: int = 0  # number of refused messages
    answered: bool = False  # whether a pull was answered by a refusal


class Server:
    """One server: its rows, the clocks of its workers, pending pulls and gradients.

    comm: the ranks.
    shard: the rows of this server and their update.
    workers: number of workers, which are ranks 0 to workers - 1.
    rule: when gradients are applied and pulls answered.
    on_clock: called with the sum of all workers' clocks whenever the sum grows.
    combine: sums the gradients of one update; see `Reducer`.
    channels: slots of shared memory, by worker; empty: messages only.

    `serve` handles messages until every worker has ended, `handle` a single one.
    A malformed message is refused, and its rank no longer is a worker; see `refused`.
    """

    def __init__(
        self,
        comm: Comm,
        shard: Shard,
        workers: int,
        rule: Consistency,
        on_clock: Callable[[int], object] = lambda clocks: None,
        combine: Combine = sum_rows,
        *,
        channels: Sequence[Channel] = (),
    ):
        self.comm, self.shard, self.rule, self.combine = comm, shard, rule, combine
        self.workers, self.on_clock, self.channels = workers, on_clock, channels
        self.rows, self.width = shard.values.shape
        self.inbox = np.empty(max_nbytes(self.rows, self.width), np.uint8)
        self.body = np.empty(shard.values.size, np.float32)
        self.clock = 0  # number of closed clocks
        self.version = 0  # number of updates
        self.clocks = [0] * workers  # number of clocks that each worker has ended
        self.total = 0  # sum of `clocks`
        self.finished_workers = 0  # number of workers that have ended the open clock
        self.applied = [0] * workers  # pushes of each worker, applied or late
        self.ended: set[int] = set()  # workers that send no more messages
        self.status = Status()
        self.log: list[Applied] = []
        self.pending: list[Push] = []  # not yet applied, in order of arrival
        # pulls: worker, clock, keys, kind
        self.waiting: list[tuple[int, int, Keys, int]] = []
        self.refused: dict[int, Refusal] = {}  # by rank
        self.dropped: set[int] = set()  # workers that were refused
        # for each worker: stored lists of keys by number
        self.lists: list[dict[int, np.ndarray]] = [{} for _ in range(workers)]
        self.out = Replies(comm, shard, workers, rule.push_based, channels)

    def serve(self) -> None:
        """Handle messages until every worker has ended."""
        while len(self.ended) < self.workers:
            self.handle_next()
        self.settle()

    def handle_next(self) -> None:
        """Wait for the next message and handle it."""
        self.comm.Recv(self.inbox, ANY, Tag.SERVER, self.status)
        self.handle(self.status.source, self.inbox, self.status.count)

    def settle(self) -> None:
        """Apply the pending gradients; wait until all sent messages have arrived."""
        self.ended = set(self.dropped)
        self.flush(sorted(self.pending, key=by_clock_and_worker))
        self.pending = []
        self.out.settle()

    def handle(self, worker: int, message: np.ndarray, nbytes: int) -> None:
        """Handle one message; refuse a malformed one and all later ones of its rank."""
        try:
            if nbytes < NBYTES or worker >= self.workers or worker in self.ended:
                raise Malformed(self.reason(worker, nbytes))
            head = read(message)
            check_head(head, nbytes, self.rows, self.clocks[worker], self.version)
            self.process(worker, head, message, nbytes)
        except Malformed as error:
            self.refuse(worker, str(error), message, nbytes)

    def reason(self, worker: int, nbytes: int) -> str:
        """Return why a message is refused without its head."""
        if worker >= self.workers:
            return "from a rank that is no worker of this server"
        if worker in self.ended:
            return "a message after the last one"
        return "too many bytes" if nbytes == TOO_LONG else f"{nbytes} bytes"

    def process(
        self, worker: int, head: Head, message: np.ndarray, nbytes: int
    ) -> None:
        """Handle a message whose head is valid."""
        self.out.release_received(worker, head)
        if head.kind & (PULL | PUSH):
            keys = self.keys(worker, head, message)
            if head.kind & PULL and head.clock <= self.clock:
                self.out.reply(worker, keys, self.state(worker), head.kind)
            elif head.kind & PULL:
                self.waiting.append((worker, head.clock, keys, head.kind))
            else:
                self.accept(worker, head, keys, message, nbytes)
        if head.kind & CLOCK:
            self.end_clock(worker, head.clock + 1)
        if head.kind & END:
            self.ended.add(worker)
            if self.rule.push_based:
                self.out.send_last(worker)

    def keys(self, worker: int, head: Head, message: np.ndarray) -> Keys:
        """Return the rows of a message; store a new list of keys."""
        if not head.rows:  # from a worker that waits for a clock
            return NO_ROWS
        if head.start >= 0:
            return slice(head.start, head.start + head.rows)
        stored = self.lists[worker]
        list_number = -1 - head.start
        if head.kind & KEYS:
            if not NBYTES + 4 * head.rows <= len(message):
                raise Malformed(f"{head.rows} keys in {len(message)} bytes")
            keys = message[NBYTES : NBYTES + 4 * head.rows].view(np.int32)
            check_keys(keys, self.rows)
            stored[list_number] = keys.copy()
        keys = stored.get(list_number, NO_ROWS)
        if len(keys) != head.rows:
            raise Malformed(f"{head.rows} keys of list {list_number}: {len(keys)}")
        return keys

    # Malformed messages.

    def refuse(self, rank: int, reason: str, message: np.ndarray, nbytes: int) -> None:
        """Refuse a message; its rank is a worker no more.

        Complete gradients that it has sent before are kept. Clocks no longer wait for
        it. The first pull is answered with a refusal.
        """
        first = self.refused.get(rank, Refusal(reason))
        if rank < self.workers and rank not in self.ended:
            self.drop(rank)
        answered = first.answered
        if not answered and nbytes >= NBYTES and read(message).kind & PULL:
            self.out.refuse(rank, read(message))
            answered = True
        self.refused[rank] = Refusal(first.reason, first.messages + 1, answered)

    def drop(self, worker: int) -> None:
        """End a worker, and answer its pulls with refusals."""
        self.ended.add(worker)
        self.dropped.add(worker)
        self.finished_workers -= self.clocks[worker] > self.clock
        self.clocks[worker] = -1
        waiting = self.waiting
        self.waiting = [pull for pull in waiting if pull[0] != worker]
        for pull in waiting:
            if pull[0] == worker:
                start = pull[2].start if isinstance(pull[2], slice) else -1
                self.out.refuse(
                    worker,
                    NO_HEAD._replace(kind=pull[3], rows=length(pull[2]), start=start),
                )
        if self.rule.push_based:
            self.out.send_last(worker)
        self.close_clocks()

    # Gradients.

    def accept(
        self, worker: int, head: Head, keys: Keys, message: np.ndarray, nbytes: int
    ) -> None:
        """Apply a gradient, or store it until its update is complete.

        Args:
          worker: Number of the worker.
          head: Head of the message.
          keys: Rows of this server.
          message: The message.
          nbytes: Its length.
        """
        start = bits_end(head.rows, head.kind)
        if head.kind & BITS:
            bits = message[keys_end(head.rows, head.kind) : start]
            has = np.unpackbits(bits, count=head.rows).view(bool)
            keys = indices(keys)[has]
        rows, count = length(keys), self.rule.aggregation_count
        size = rows * self.width
        separate = is_separate(rows, self.width)
        if nbytes != start + (0 if separate or head.kind & SLOT else 4 * size):
            raise Malformed(f"{nbytes} bytes with values of {rows} rows")
        is_late = not count and head.clock < self.clock
        is_stored = count != 1 and not is_late
        if head.kind & SLOT:
            self.check_slot(worker, head, size)
            flat = self.channels[worker].pushes.values(head.kind, size)
            flat = flat.copy() if is_stored else flat
        elif separate:
            flat = np.empty(size, np.float32) if is_stored else self.body[:size]
            self.comm.Recv(flat, worker, Tag.GRADIENTS, self.status)
            if self.status.count != flat.nbytes:
                raise Malformed(f"values not of {flat.nbytes} bytes")
        else:
            flat = np.frombuffer(message, np.float32, size, start)
            flat = flat.copy() if is_stored else flat  # the inbox is reused
        push = Push(worker, head, keys, flat.reshape(rows, self.width))
        if is_late:
            self.log_gradient(push, late=1)
        elif is_stored:
            self.pending.append(push)
            if len(self.pending) == count:
                self.flush(self.pending)
                self.pending = []
        else:
            self.flush([push])
        if head.kind & SLOT:
            self.channels[worker].pushes.free(head.kind)

    def check_slot(self, worker: int, head: Head, size: int) -> None:
        """Raise Malformed for a slot that does not exist."""
        if not self.channels or size > self.channels[worker].pushes.size:
            raise Malformed(f"a slot of {size} elements")

    def end_clock(self, worker: int, clock: int) -> None:
        """Set the number of clocks that a worker has ended; close complete clocks."""
        self.finished_workers += self.clocks[worker] <= self.clock < clock
        self.total += clock - self.clocks[worker]
        self.clocks[worker] = clock
        self.close_clocks()

    @property
    def needed_workers(self) -> int:
        """Number of workers that must end a clock before it closes."""
        active = self.workers - len(self.dropped)
        return max(1, active - self.rule.backups)

    def close_clocks(self) -> None:
        """Close the clocks that enough workers have ended; answer pulls."""
        clock_before = self.clock
        while self.finished_workers >= self.needed_workers:
            if not self.rule.aggregation_count:
                # order matters: by worker, not by arrival, for bit-identical sums
                order = sorted(self.pending, key=by_clock_and_worker)
                due = [push for push in order if push.head.clock <= self.clock]
                self.pending = order[len(due) :]
                self.flush(due)
            self.clock += 1
            self.finished_workers = sum(ended > self.clock for ended in self.clocks)
            if self.rule.push_based:
                self.send_changes()
        self.on_clock(self.total)
        if self.clock > clock_before:
            self.answer_pulls()

    def flush(self, pushes: list[Push]) -> None:
        """Apply gradients as one update."""
        if not pushes:
            return
        for push in pushes:
            if self.rule.staleness_scaled:
                staleness = self.version - push.head.version
                np.divide(push.grads, np.float32(max(1, staleness)), out=push.grads)
            self.log_gradient(push)
        # share of the minibatch: 1 with the gradients of all workers
        share = round(sum([push.head.weight for push in pushes]), 9)
        keys, grads = self.combine([Rows(push.keys, push.grads) for push in pushes])
        if self.rule.averaged and share:
            grads, share = np.divide(grads, np.float32(share)), 1.0
        self.out.before_update()
        self.shard.update(keys, grads, share)
        if self.rule.push_based:
            self.out.dirty[keys] = True
        self.version += 1

    def log_gradient(self, push: Push, late: int = 0) -> None:
        """Log a gradient that is applied now, or dropped as late."""
        head = push.head
        staleness = self.version - head.version
        self.applied[push.worker] += 1
        now, rows = self.comm.Wtime(), length(push.keys)
        entry = Applied(now, push.worker, head.clock, staleness, head.loss, rows, late)
        self.log.append(entry)

    # Rows.

    def answer_pulls(self) -> None:
        """Answer the pulls whose clocks are complete."""
        ready = [pull for pull in self.waiting if pull[1] <= self.clock]
        if ready:
            self.waiting = [pull for pull in self.waiting if pull[1] > self.clock]
            for worker, _, keys, kind in sorted(ready, key=lambda pull: pull[0]):
                self.out.reply(worker, keys, self.state(worker), kind)

    def send_changes(self) -> None:
        """Send each worker the rows that it has read and that have changed."""
        for worker in range(self.workers):
            if worker not in self.ended:
                self.out.send_changes(worker, self.state(worker))
        self.out.dirty[:] = False

    def state(self, worker: int) -> State:
        """Return the state that is sent to a worker before rows."""
        return State(self.clock, self.version, self.applied[worker])


def by_clock_and_worker(push: Push) -> tuple[int, int]:
    """Return the sort key of a push."""
    return push.head.clock, push.worker
