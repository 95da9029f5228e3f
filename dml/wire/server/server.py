"""A parameter server: rows of a table, updated by the gradients of all workers.

pulls     ──► answered when all gradients of the required clocks are applied
gradients ──► combine ──► update ──► the next version of the rows

Gradients are applied on arrival, or stored until their clock closes and then summed in
the order of the workers. A clock closes when all workers, or all but the backup
workers, have ended it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dml.types import TOO_LONG, Combine, Comm, RankFailed, Shard
from dml.wire.comm.plain import as_comm
from dml.wire.comm.surviving import new_deaths
from dml.wire.reducers.rows import Keys, length, sum_rows
from dml.wire.server.clocks import Clocks
from dml.wire.server.consistency import Consistency
from dml.wire.server.header import (
    CLOCK,
    END,
    NBYTES,
    PULL,
    PUSH,
    SLOT,
    ServerHead,
    max_nbytes,
)
from dml.wire.server.inbox import Inbox
from dml.wire.server.pushes import Push, Pushes
from dml.wire.server.refusals import Refusals
from dml.wire.server.replies import REPLIES, Replies, ServerState
from dml.wire.server.slots import Channel
from dml.wire.server.updates import Applied, Updates
from dml.wire.server.validation import Limits, Malformed, Stale, read_valid


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
    elastic: whether the run continues without workers that have died; `comm` is a
        Surviving one. Otherwise the server waits for them.

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
        elastic: bool = False,
    ):
        self.comm = comm = as_comm(comm)
        self.shard, self.rule = shard, rule
        self.elastic = elastic
        self.workers, self.on_clock = workers, on_clock
        rows, self.width = shard.values.shape
        self.inbox = Inbox(comm, max_nbytes(rows, self.width))
        self.clocks = Clocks(workers, rule.backups)
        self.active = set(range(workers))  # workers that may send messages
        self.limits = Limits(rows, max(1, lists), rule.backups > 0, run)
        # pulls: worker, clock, keys, kind
        self.waiting: list[tuple[int, int, Keys, int]] = []
        self.refusals = Refusals(comm)
        self.refused = self.refusals.by_rank
        self.dropped: set[int] = set()  # workers that were refused, or have died
        self.dead: set[int] = set()  # workers that have died before their end
        self.failed: set[int] = set()  # ranks that have died
        stores = rule.by_clock or rule.aggregation_count > 1
        self.pushes = Pushes(comm, shard.values.shape, workers, channels, stores)
        self.out = Replies(comm, shard, workers, rule.push_based, channels)
        self.updates = Updates(comm, shard, workers, rule, combine, self.out)

    @property
    def clock(self) -> int:
        """Number of closed clocks."""
        return self.clocks.closed

    @property
    def version(self) -> int:
        """Number of updates."""
        return self.updates.version

    @property
    def log(self) -> list[Applied]:
        """Log entries of all applied and dropped gradients."""
        return self.updates.log

    def serve(self) -> None:
        """Handle messages until every worker has ended."""
        if self.elastic:
            self.comm.Ack_failed()  # from now on a death ends the wait for a message
            self.drop_failed()
        while self.active:
            try:
                self.handle_next()
            except RankFailed:
                if not self.elastic:
                    raise
                self.drop_failed()
        self.settle()

    def handle_next(self, *others: Any) -> int:
        """Handle the next message and its values, or wait for another request.

        Until announced values arrive, which a worker may never send, further messages
        are handled.

        Returns:
          The index of a request of `others` that has completed; -1: a message has.
        """
        receives, inbox = self.pushes.receives, self.inbox
        while True:
            # order matters: a receive that fails is posted, so that it can be withdrawn
            if not (others or receives or inbox.posted or self.elastic):
                inbox.receive()
                rank = self.handle_inbox()
            else:
                requests = [*others, *receives.values(), inbox.post()]
                completed = self.comm.Waitany(requests, inbox.status)
                if completed < len(others):
                    return completed
                if completed == len(requests) - 1:
                    inbox.posted = None
                    rank = self.handle_inbox()
                else:
                    rank = [*receives][completed - len(others)]
                    self.add_values(rank)
            if rank not in self.pushes.announced:
                return -1

    def withdraw(self) -> None:
        """Withdraw the posted receive, or handle its message if it has one."""
        if self.inbox.withdraw():
            self.handle_inbox()

    def handle_inbox(self) -> int:
        """Handle the message in the inbox; return its rank."""
        rank = self.inbox.status.source
        self.handle(rank, self.inbox.buffer, self.inbox.status.count)
        return rank

    def handle_arrived(self) -> None:
        """Handle all messages that have arrived."""
        for rank, request in [*self.pushes.receives.items()]:
            if request.Test(self.inbox.status):
                self.add_values(rank)
        while (self.inbox.posted or self.active) and self.inbox.poll():
            self.handle_inbox()

    def add_values(self, rank: int) -> None:
        """Add the gradient whose values have arrived; refuse other values."""
        try:
            push = self.pushes.arrived(rank, self.inbox.status.count)
            if push:
                self.add(push)
        except Malformed as error:
            self.refuse(rank, str(error))

    def settle(self) -> None:
        """Apply the pending gradients; wait until all sent messages have arrived."""
        self.withdraw()
        self.active = set(range(self.workers)) - self.dropped
        self.updates.settle()
        self.pushes.settle()
        for worker in self.dropped:
            self.out.abandon(worker)
        self.out.settle()

    def handle(self, worker: int, message: np.ndarray, nbytes: int) -> None:
        """Handle one message; refuse a malformed one and all later ones of its rank."""
        if worker in self.dead:  # sent before its death
            return
        try:
            if nbytes < NBYTES or worker not in self.active:
                raise Malformed(self.reason(worker, nbytes))
            pushes = self.pushes
            if pushes.announced and worker in pushes.announced:
                self.add(pushes.take(worker))  # sent before this message
            clocks, version = self.clocks.ended[worker], self.updates.version
            head = read_valid(message, nbytes, self.limits, clocks, version)
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

    def answer(self, worker: int, head: ServerHead, keys: Keys) -> None:
        """Answer a pull, now or when its clock is complete."""
        if head.kind & SLOT:
            slots = self.pushes.slots(worker, replies=True)
            slots.check(head.kind, length(keys) * self.width)
        if head.clock <= self.clocks.closed:
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

    def drop_failed(self) -> None:
        """Drop the workers that have died since the last call."""
        for rank in new_deaths(self.comm, self.failed):
            self.drop_dead(rank)
        self.withdraw()

    def drop_dead(self, rank: int) -> None:
        """Drop a worker that has died; other ranks are ignored.

        Its complete gradients are kept, also if they wait for their clock.
        """
        self.pushes.forget(rank)
        if rank in self.active:
            self.dead.add(rank)
            self.drop(rank)

    def drop(self, worker: int) -> None:
        """End a worker that was refused or has died."""
        self.active.discard(worker)
        self.dropped.add(worker)
        self.waiting = [pull for pull in self.waiting if pull[0] != worker]
        closes = self.clocks.drop(worker)
        if self.rule.push_based:
            self.out.send_last(worker)
        if closes:
            self.close_clocks()

    # Gradients.

    def add(self, push: Push) -> None:
        """Apply a gradient, or store it until its update is complete; end its clock."""
        self.updates.add(push, self.clocks.closed)
        if push.head.kind & SLOT:
            self.pushes.free(push)
        if push.head.kind & CLOCK:
            self.end_clock(push.worker, push.head.clock + 1)

    def end_clock(self, worker: int, clock: int) -> None:
        """Set the number of clocks that a worker has ended; close complete clocks."""
        if self.clocks.end(worker, clock):
            self.close_clocks()
        else:
            self.on_clock(self.clocks.total)

    def close_clocks(self) -> None:
        """Close the clocks that enough workers have ended; answer pulls."""
        closes = True
        while closes:
            self.updates.close(self.clocks.closed)
            closes = self.clocks.close()
            if self.rule.push_based:
                self.send_changes()
        self.on_clock(self.clocks.total)
        self.answer_pulls()

    # Rows.

    def answer_pulls(self) -> None:
        """Answer the pulls whose clocks are complete."""
        clock = self.clocks.closed
        ready = [pull for pull in self.waiting if pull[1] <= clock]
        if ready:
            self.waiting = [pull for pull in self.waiting if pull[1] > clock]
            for worker, _, keys, kind in sorted(ready, key=lambda pull: pull[0]):
                self.out.reply(worker, keys, self.state(worker), kind)

    def send_changes(self) -> None:
        """Send each worker the rows that it has read and that have changed."""
        for worker in range(self.workers):
            if worker in self.active:
                self.out.send_changes(worker, self.state(worker))
        self.out.dirty[:] = False

    def state(self, worker: int) -> ServerState:
        """Return the state that is sent to a worker before rows."""
        updates = self.updates
        return ServerState(self.clocks.closed, updates.version, updates.applied[worker])
