"""The updates of the rows of a server by the gradients that workers push.

gradients ──► pending, until their update is complete ──► combine ──► update
"""

from typing import NamedTuple

import numpy as np

from dml.types import Combine, Comm, Rows, Shard
from dml.wire.server.consistency import Consistency
from dml.wire.server.pushes import Push
from dml.wire.server.replies import Replies


class Applied(NamedTuple):
    """The log entry of a gradient that was applied, or dropped as late."""

    seconds: float  # time at which it was applied or dropped
    worker: int
    clock: int
    staleness: int  # number of updates since the version from which it was computed
    loss: float
    rows: int  # number of the gradient's rows that are on this server
    late: int  # 1: dropped; 0: applied


class Updates:
    """The pending gradients of a server, and the log of applied and dropped gradients.

    comm: the ranks.
    shard: the rows of the server and their update.
    workers: number of workers.
    rule: when gradients are applied.
    combine: sums the gradients of one update; see `Reducer`.
    out: replies, which keep rows that are being sent.
    """

    def __init__(
        self,
        comm: Comm,
        shard: Shard,
        workers: int,
        rule: Consistency,
        combine: Combine,
        out: Replies,
    ):
        self.comm, self.shard, self.rule = comm, shard, rule
        self.combine, self.out = combine, out
        self.version = 0  # number of updates
        self.applied = [0] * workers  # pushes of each worker, applied or late
        self.pending: list[Push] = []  # not yet applied, in order of arrival
        self.log: list[Applied] = []

    def add(self, push: Push, clock: int) -> None:
        """Apply a gradient, or store it until its update is complete.

        Args:
          push: The gradient.
          clock: Number of closed clocks.
        """
        if not self.rule.by_clock:
            self.pending.append(push)
            if len(self.pending) == self.rule.aggregation_count:
                self.flush(self.pending)
                self.pending = []
        elif push.head.clock < clock:
            self.log_gradient(push, late=1)
        else:
            self.pending.append(push)

    def close(self, clock: int) -> None:
        """Apply the pending gradients of a clock as one update."""
        if not self.rule.by_clock:
            return
        # order matters: by worker, not by arrival, for bit-identical sums
        order = sorted(self.pending, key=by_clock_and_worker)
        due = [push for push in order if push.head.clock <= clock]
        self.pending = order[len(due) :]
        self.flush(due)

    def settle(self) -> None:
        """Apply all pending gradients as one update."""
        self.flush(sorted(self.pending, key=by_clock_and_worker))
        self.pending = []

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


def by_clock_and_worker(push: Push) -> tuple[int, int]:
    """Return the sort key of a push."""
    return push.head.clock, push.worker
