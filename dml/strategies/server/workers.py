"""A worker's loop over clocks: read rows, compute a gradient, push it.

    read ─► gradient ─► push, clock ─► read ─► …          wait: until the rows have come
            request the next rows                         with prefetch, before that

Words a clock: those of the rows that are read and of the gradient.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dml.data.shards import shard
from dml.metrics.timer import Timer
from dml.types import BadInput, Problem, Rows, Step, nothing
from dml.wire.reducers.rows import Keys, summed
from dml.wire.server.replica import Reading, Replica

Sift = Callable[[np.ndarray, np.ndarray], np.ndarray]  # values, grads -> which to send
SKIP, STOP = "skip", "stop"


class Habits(NamedTuple):
    """How a worker computes and pushes.

    Attributes:
      pushes: Clocks between two pushes, each of their summed gradients.
      prefetch: Whether the next rows are requested before the computation.
      microbatches: Parts of a minibatch, between which a colocated server serves.
      on_nonfinite: SKIP or STOP, at a gradient that is not finite.
      sift: A filter of keys: (values, gradients) -> the mask of rows to push.
    """

    pushes: int = 1
    prefetch: bool = False
    microbatches: int = 1
    on_nonfinite: str = STOP
    sift: Sift | None = None


class Counts:
    """Numbers and seconds of a worker's gradients."""

    def __init__(self) -> None:
        self.nonfinite = self.sifted = self.offered = self.skipped_clocks = 0
        self.waited = self.computed = 0.0


class Part(NamedTuple):
    """A worker's part of a minibatch."""

    clock: int
    numbers: np.ndarray
    batch: Any  # of these examples
    rows: Keys
    weight: float  # in the minibatch


class Kept(NamedTuple):
    """A gradient to be pushed."""

    rows: Keys
    grads: np.ndarray  # times the weight
    weight: float  # in the minibatch
    loss: float
    of: Keys  # the rows that were read
    has: np.ndarray | None = None  # the mask of those in `rows`; None: all


class Parts:
    """A worker's parts of the minibatches, in order."""

    def __init__(
        self, problem: Problem, batches: Iterable[np.ndarray], worker: int, workers: int
    ):
        self.problem, self.batches = problem, enumerate(batches)
        self.worker, self.workers = worker, workers

    def at(self, clock: int) -> Part | None:
        """Return this worker's part of that clock's minibatch; None after the last."""
        for number, index in self.batches:
            if number == clock:
                mine = shard(index, self.worker, self.workers)
                weight = len(mine) / len(index)
                if not len(mine):
                    return Part(clock, mine, None, np.empty(0, int), weight)
                batch = self.problem.take(mine)
                return Part(clock, mine, batch, touched(self.problem, batch), weight)
        return None


def touched(problem: Problem, batch: Any) -> Keys:
    """Return the rows that a batch touches; all of a problem without `touched`."""
    return problem.touched(batch) if problem.touched else slice(0, len(problem.params))


def work(
    parts: Parts,
    replica: Replica,
    timer: Timer,
    habits: Habits,
    counts: Counts,
    poll: Callable[[], object] | None = None,
) -> Iterator[Step]:
    """Train by all minibatches; yield a Step per clock, with this worker's loss."""
    client, comm = replica.client, replica.client.comm
    part = parts.at(client.clock)
    reading: Reading | None = None
    summing: list[Kept] = []  # of the clocks that are not pushed yet
    while part:
        sent = comm.bytes_sent
        with timer("wait"):
            reading = reading or replica.ask(part.rows, part.clock)
            replica.have(reading, part.rows, part.clock)
        if replica.rule.backups and replica.clock > part.clock:
            # the other workers are clocks ahead: continue at theirs
            if summing:
                push(replica, summing, ends_clock=False)
                summing = []
            counts.skipped_clocks += replica.clock - part.clock
            client.clock, reading = replica.clock, None
            part = parts.at(client.clock)
            continue
        following = parts.at(part.clock + 1)
        reading = None
        if habits.prefetch and following:
            with timer("wire"):
                reading = replica.ask(following.rows, following.clock)
        with timer("gradient"):
            loss, grads = computed(parts.problem, replica, part, habits, poll)
            comm.platform.work(part.weight * parts.workers)
        with timer("wire"):
            summing.append(kept(replica, part, grads, habits, counts, loss))
            replica.wrote(*summing[-1][:3])
            if len(summing) == habits.pushes or not following:
                push(replica, summing)
                summing = []
            else:
                client.clock_ends()
        seconds = timer.lap()
        counts.waited += seconds.get("wait", 0.0)
        counts.computed += seconds.get("gradient", 0.0)
        words = (comm.bytes_sent - sent) // 4
        yield Step(part.clock + 1, loss, nothing, len(part.numbers), seconds, words)
        part = following
    client.end()
    replica.finish()


def computed(
    problem: Problem,
    replica: Replica,
    part: Part,
    habits: Habits,
    poll: Callable[[], object] | None,
) -> tuple[float, np.ndarray]:
    """Return the part's loss and its gradient, times its weight in the minibatch."""
    if not len(part.numbers):
        return 0.0, np.empty((0, replica.table.shape[1]), np.float32)
    if habits.microbatches == 1:
        loss, found = problem.gradient(replica.table, part.batch)
        return loss, found.values * np.float32(part.weight)
    loss, total = 0.0, []
    for piece in np.array_split(part.numbers, habits.microbatches):
        if len(piece):
            share = len(piece) / len(part.numbers)
            lost, found = problem.gradient(replica.table, problem.take(piece))
            loss += lost * share
            scaled = found.values * np.float32(share * part.weight)
            total.append(Rows(found.index, scaled))
        if poll:
            poll()
    rows, grads = summed(total)
    if len(total) == 1 or isinstance(rows, slice) or isinstance(part.rows, slice):
        return loss, grads
    order = np.argsort(rows)  # touched rows come in any order
    return loss, grads[order[np.searchsorted(rows, part.rows, sorter=order)]]


def kept(
    replica: Replica,
    part: Part,
    grads: np.ndarray,
    habits: Habits,
    counts: Counts,
    loss: float,
) -> Kept:
    """Return the part of a gradient that is pushed: finite, and filtered."""
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(grads.sum()) or np.isfinite(grads).all()
    if not finite:
        counts.nonfinite += 1
        if habits.on_nonfinite == STOP:
            raise FloatingPointError(
                f"rank {replica.client.comm.rank}, clock {part.clock}: expected a "
                "finite gradient, got NaN or infinity; pass a lower --lr, or "
                "--on_nonfinite=skip"
            )
        none = slice(0, 0) if isinstance(part.rows, slice) else part.rows[:0]
        return Kept(none, grads[:0], 0.0, loss, none)
    if habits.sift is None:
        return Kept(part.rows, grads, part.weight, loss, part.rows)
    if isinstance(part.rows, slice):
        raise BadInput("expected sparse rows to sift, got a dense problem")
    has = habits.sift(replica.table[part.rows], grads / np.float32(part.weight))
    counts.offered += len(part.rows)
    counts.sifted += len(part.rows) - int(has.sum())
    return Kept(part.rows[has], grads[has], part.weight, loss, part.rows, has)


def push(replica: Replica, summing: list[Kept], ends_clock: bool = True) -> None:
    """Push the sum of several clocks' gradients, and end the last clock."""
    weight = sum(one.weight for one in summing)
    loss = sum(one.loss for one in summing) / len(summing)
    replica.pushes += 1
    if len(summing) == 1:  # the server knows its keys from the pull
        (one,) = summing
        keys, grads, has = one.of, one.grads, one.has
    else:
        keys, grads = summed([Rows(one.rows, one.grads) for one in summing])
        has = None
    replica.client.push(keys, grads, weight, loss, ends_clock=ends_clock, has=has)
