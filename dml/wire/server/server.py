"""A parameter server: rows of a table, updated by the gradients of all workers.

pulls     ──► answered when all gradients of the required clocks are applied
gradients ──► combine ──► update ──► the next version of the rows

Gradients are applied on arrival, or stored until their clock closes and then summed in
the order of the workers. A clock closes when all workers, or all but the backup
workers, have ended it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.types import ANY, TOO_LONG, WITHDRAWN, Combine, Comm, Rows, Shard, Status
from dml.wire.comm.tags import Tag
from dml.wire.reducers.rows import Keys, length, sum_rows
from dml.wire.server.consistency import Consistency
from dml.wire.server.header import (
    CLOCK,
    END,
    NBYTES,
    PULL,
    PUSH,
    SLOT,
    Head,
    max_nbytes,
)
from dml.wire.server.pushes import Push, Pushes
from dml.wire.server.refusals import Refusals
from dml.wire.server.replies import REPLIES, Replies, State
from dml.wire.server.slots import Channel
from dml.wire.server.validation import Limits, Malformed, Stale, read_valid


class Applied(NamedTuple):
    """The log entry of a gradient: applied, or late and dropped."""

    seconds: float  # time at which it was applied or dropped
    worker: int
    clock: int
    staleness: int  # number of updates since the version from which it was computed
    loss: float
    rows: int  # number of the gradient's rows that are on this server
    late: int  # 1: dropped; 0: applied


class Server:
    """One server: its rows, the clocks of its workers, pending pulls and gradients.

    comm: the ranks.
    shard: the rows of this server and their update.
    workers: number of workers, which are ranks 0 to workers - 1.
    rule: when gradients are applied and pulls answered.
    on_clock: called with the sum of all workers' clocks whenever the sum grows.
    combine: sums the gradients of one update; see `Reducer`.
    channels: slots of shared memory, by worker; empty: messages only.
    lists: number of key lists that are stored for each worker.
    run: number of the run, equal on its workers and servers.

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
        lists: int = 64,
        run: int = 0,
    ):
        self.comm, self.shard, self.rule, self.combine = comm, shard, rule, combine
        self.workers, self.on_clock = workers, on_clock
        self.rows, self.width = shard.values.shape
        self.inbox = np.empty(max_nbytes(self.rows, self.width), np.uint8)
        self.clock = 0  # number of closed clocks
        self.version = 0  # number of updates
        self.clocks = [0] * workers  # number of clocks that each worker has ended
        self.total = 0  # sum of `clocks`
        self.finished_workers = 0  # number of workers that have ended the open clock
        self.needed_workers = workers - rule.backups  # that must end it to close it
        self.applied = [0] * workers  # pushes of each worker, applied or late
        self.active = set(range(workers))  # workers that may send messages
        self.limits = Limits(self.rows, max(1, lists), rule.backups > 0, run)
        self.status = Status()
        self.log: list[Applied] = []
        self.pending: list[Push] = []  # not yet applied, in order of arrival
        # pulls: worker, clock, keys, kind
        self.waiting: list[tuple[int, int, Keys, int]] = []
        self.refusals = Refusals(comm)
        self.refused = self.refusals.by_rank
        self.dropped: set[int] = set()  # workers that were refused
        stores = rule.aggregation_count != 1
        self.pushes = Pushes(comm, shard.values.shape, workers, channels, stores)
        self.receive: Any = None  # posted while values may arrive, too
        self.out = Replies(comm, shard, workers, rule.push_based, channels)

    def serve(self) -> None:
        """Handle messages until every worker has ended."""
        while self.active:
            self.handle_next()
        self.settle()

    def handle_next(self, *others: Any) -> int:
        """Handle the next message and its values, or wait for another request.

        Until announced values arrive, which a worker may never send, further messages
        are handled.

        Returns:
          The index of a request of `others` that has completed; -1: a message has.
        """
        receives = self.pushes.receives
        while True:
            if not (others or receives or self.receive):
                self.comm.Recv(self.inbox, ANY, Tag.SERVER, self.status)
                rank = self.handle_inbox()
            else:
                requests = [*others, *receives.values(), self.next_receive()]
                completed = self.comm.Waitany(requests, self.status)
                if completed < len(others):
                    return completed
                if completed == len(requests) - 1:
                    rank = self.handle_inbox()
                else:
                    rank = [*receives][completed - len(others)]
                    self.add_values(rank)
            if rank not in self.pushes.announced:
                return -1

    def next_receive(self) -> Any:
        """Return the posted receive of the next message; post it if necessary."""
        if self.receive is None:
            self.receive = self.comm.Irecv(self.inbox, ANY, Tag.SERVER)
        return self.receive

    def withdraw(self) -> None:
        """Withdraw the posted receive, or handle its message if it has one."""
        if self.receive is not None:
            self.receive.Cancel()
            self.receive.Wait(self.status)
            if self.status.count == WITHDRAWN:
                self.receive = None
            else:
                self.handle_inbox()

    def handle_inbox(self) -> int:
        """Handle the message in the inbox; return its rank."""
        self.receive, rank = None, self.status.source
        self.handle(rank, self.inbox, self.status.count)
        return rank

    def handle_arrived(self) -> None:
        """Handle all messages that have arrived."""
        for rank, request in [*self.pushes.receives.items()]:
            if request.Test(self.status):
                self.add_values(rank)
        if self.receive is not None:
            if not self.receive.Test(self.status):
                return
            self.handle_inbox()
        while self.active and self.comm.Iprobe(ANY, Tag.SERVER):
            self.comm.Recv(self.inbox, ANY, Tag.SERVER, self.status)
            self.handle_inbox()

    def add_values(self, rank: int) -> None:
        """Add the gradient whose values have arrived; refuse other values."""
        try:
            push = self.pushes.arrived(rank, self.status.count)
            if push:
                self.add(push)
        except Malformed as error:
            self.refuse(rank, str(error))

    def settle(self) -> None:
        """Apply the pending gradients; wait until all sent messages have arrived."""
        self.withdraw()
        self.active = set(range(self.workers)) - self.dropped
        self.flush(sorted(self.pending, key=by_clock_and_worker))
        self.pending = []
        self.pushes.settle()
        for worker in self.dropped:
            self.out.abandon(worker)
        self.out.settle()

    def handle(self, worker: int, message: np.ndarray, nbytes: int) -> None:
        """Handle one message; refuse a malformed one and all later ones of its rank."""
        try:
            if nbytes < NBYTES or worker not in self.active:
                raise Malformed(self.reason(worker, nbytes))
            pushes = self.pushes
            if pushes.announced and worker in pushes.announced:
                self.add(pushes.take(worker))  # sent before this message
            clocks = self.clocks[worker]
            head = read_valid(message, nbytes, self.limits, clocks, self.version)
            self.out.release_received(worker, head)
            kind = head.kind
            if kind & PUSH:
                push = pushes.read(worker, head, message, nbytes)
                if push is not None:
                    self.add(push)
            elif kind & PULL:
                self.answer(worker, head, pushes.keys(worker, head, message))
            elif kind & END:
                self.end(worker)
            else:
                self.end_clock(worker, head.clock + 1)
        except Stale as error:
            self.refusals.add(worker, str(error), notify=False)
        except Malformed as error:
            self.refuse(worker, str(error))

    def reason(self, worker: int, nbytes: int) -> str:
        """Return why a message is refused without its head."""
        if not 0 <= worker < self.workers:
            return "from a rank that is no worker of this server"
        if worker not in self.active:
            return "a message after the last one"
        return "too many bytes" if nbytes == TOO_LONG else f"{nbytes} bytes"

    def answer(self, worker: int, head: Head, keys: Keys) -> None:
        """Answer a pull, now or when its clock is complete."""
        if head.kind & SLOT:
            slots = self.pushes.slots(worker, replies=True)
            slots.check(head.kind, length(keys) * self.width)
        if head.clock <= self.clock:
            self.out.reply(worker, keys, self.state(worker), head.kind)
        else:
            self.waiting.append((worker, head.clock, keys, head.kind))

    def end(self, worker: int) -> None:
        """End a worker, which has received the replies to all its pulls."""
        unanswered = sum(pull[0] == worker for pull in self.waiting)
        unread = unanswered + len(self.out.sent[worker][REPLIES])
        if unread:
            raise Malformed(f"the last message before {unread} replies")
        self.active.discard(worker)
        if self.rule.push_based:
            self.out.send_last(worker)

    # Malformed messages.

    def refuse(self, rank: int, reason: str) -> None:
        """Refuse a message; its rank is a worker no more.

        Complete gradients that it has sent before are kept. Clocks no longer wait for
        it. Its next pull receives a refusal.
        """
        if self.refusals.add(rank, reason):
            self.pushes.drop(rank)
        if rank in self.active:
            self.drop(rank)

    def drop(self, worker: int) -> None:
        """End a worker that was refused."""
        self.active.discard(worker)
        self.dropped.add(worker)
        self.waiting = [pull for pull in self.waiting if pull[0] != worker]
        self.finished_workers -= self.clocks[worker] > self.clock
        self.clocks[worker] = -1
        workers = self.workers - len(self.dropped)
        self.needed_workers = max(1, workers - self.rule.backups)
        if self.rule.push_based:
            self.out.send_last(worker)
        if self.finished_workers >= self.needed_workers:
            self.close_clocks()

    # Gradients.

    def add(self, push: Push) -> None:
        """Apply a gradient, or store it until its update is complete; end its clock."""
        head, count = push.head, self.rule.aggregation_count
        if not count and head.clock < self.clock:
            self.log_gradient(push, late=1)
        elif count != 1:
            self.pending.append(push)
            if len(self.pending) == count:
                self.flush(self.pending)
                self.pending = []
        else:
            self.flush([push])
        if head.kind & SLOT:
            self.pushes.free(push)
        if head.kind & CLOCK:
            self.end_clock(push.worker, head.clock + 1)

    def end_clock(self, worker: int, clock: int) -> None:
        """Set the number of clocks that a worker has ended; close complete clocks."""
        self.finished_workers += self.clocks[worker] <= self.clock < clock
        self.total += clock - self.clocks[worker]
        self.clocks[worker] = clock
        if self.finished_workers >= self.needed_workers:
            self.close_clocks()
        else:
            self.on_clock(self.total)

    def close_clocks(self) -> None:
        """Close the clocks that enough workers have ended; answer pulls."""
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
        now, rows = self.comm.Wtime(), len(push.grads)
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
            if worker in self.active:
                self.out.send_changes(worker, self.state(worker))
        self.out.dirty[:] = False

    def state(self, worker: int) -> State:
        """Return the state that is sent to a worker before rows."""
        return State(self.clock, self.version, self.applied[worker])


def by_clock_and_worker(push: Push) -> tuple[int, int]:
    """Return the sort key of a push."""
    return push.head.clock, push.worker
