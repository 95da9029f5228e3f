"""A worker's loop over clocks: read rows, compute a gradient, push it.

    read ─► gradient ─► push, clock ─► read ─► …          wait: until the rows arrive
            request the next rows                         with prefetch, before the
                                                          gradient is computed
Words per clock: those of the rows read and of the gradient.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dml.data.shards import shard
from dml.metrics.timer import Timer
from dml.types import BadInput, Problem, Rows, Step, no_op
from dml.wire.reducers.rows import Keys, sum_rows
from dml.wire.server.replica import Reading, Replica

RowFilter = Callable[[np.ndarray, np.ndarray], np.ndarray]  # values, grads -> mask
SKIP, STOP = "skip", "stop"


class WorkerOptions(NamedTuple):
    """How a worker computes and pushes.

    Attributes:
      pushes: Number of clocks between two pushes, each of their summed gradients.
      prefetch: Whether the next rows are requested before the computation.
      microbatches: Number of parts of a minibatch; a colocated server serves between
        them.
      on_nonfinite: SKIP or STOP at a gradient that is not finite.
      row_filter: (values, gradients) -> mask of the rows to push; None pushes all.
    """

    pushes: int = 1
    prefetch: bool = False
    microbatches: int = 1
    on_nonfinite: str = STOP
    row_filter: RowFilter | None = None


class Counts:
    """Counters and seconds of a worker's gradients."""

    def __init__(self) -> None:
        self.nonfinite = self.sifted = self.offered = self.skipped_clocks = 0
        self.waited = self.computed = 0.0


class Part(NamedTuple):
    """A worker's part of a minibatch."""

    clock: int
    indices: np.ndarray  # of its examples
    batch: Any  # `take` of the indices
    rows: Keys  # that it touches
    weight: float  # share of the minibatch's examples


class PendingGradient(NamedTuple):
    """A gradient to push."""

    rows: Keys
    grads: np.ndarray  # multiplied by the weight
    weight: float  # share of the minibatch's examples
    loss: float
    read: Keys  # rows that were read
    mask: np.ndarray | None = None  # of the rows read: those in `rows`; None: all


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
                indices = shard(index, self.worker, self.workers)
                weight = len(indices) / len(index)
                if not len(indices):
                    return Part(clock, indices, None, np.empty(0, int), weight)
                batch = self.problem.take(indices)
                return Part(clock, indices, batch, touched(self.problem, batch), weight)
        return None


def touched(problem: Problem, batch: Any) -> Keys:
    """Return the rows that a batch touches; all of a problem without `touched`."""
    return problem.touched(batch) if problem.touched else slice(0, len(problem.params))


def worker_steps(
    parts: Parts,
    replica: Replica,
    *,
    timer: Timer,
    options: WorkerOptions,
    counts: Counts,
    poll: Callable[[], object] | None = None,
) -> Iterator[Step]:
    """Train on all minibatches; yield a Step per clock, with the loss of this worker.

    Args:
      parts: This worker's parts of the minibatches.
      replica: This worker's copy of the rows.
      timer: Measures the phases.
      options: How the worker computes and pushes.
      counts: Receives the counters.
      poll: Lets a colocated server serve; None: there is none.
    """
    client, comm = replica.client, replica.client.comm
    part = parts.at(client.clock)
    reading: Reading | None = None
    unpushed: list[PendingGradient] = []  # gradients of clocks that are not pushed yet
    while part:
        sent = comm.bytes_sent
        with timer("wait"):
            reading = reading or replica.begin_read(part.rows, part.clock)
            replica.finish_read(reading, part.rows, part.clock)
        if replica.rule.backups and replica.clock > part.clock:
            # the other workers are clocks ahead: skip to their clock
            if unpushed:
                push(replica, unpushed, ends_clock=False)
                unpushed = []
            counts.skipped_clocks += replica.clock - part.clock
            client.clock, reading = replica.clock, None
            part = parts.at(client.clock)
            continue
        following = parts.at(part.clock + 1)
        reading = None
        if options.prefetch and following:
            with timer("wire"):
                reading = replica.begin_read(following.rows, following.clock)
        with timer("gradient"):
            loss, grads = part_gradient(parts.problem, replica, part, options, poll)
            comm.platform.work(part.weight * parts.workers)
        with timer("wire"):
            unpushed.append(filtered(replica, part, grads, options, counts, loss))
            replica.add_gradient(*unpushed[-1][:3])
            if len(unpushed) == options.pushes or not following:
                push(replica, unpushed)
                unpushed = []
            else:
                client.end_clock()
        seconds = timer.lap()
        counts.waited += seconds.get("wait", 0.0)
        counts.computed += seconds.get("gradient", 0.0)
        words = (comm.bytes_sent - sent) // 4
        yield Step(part.clock + 1, loss, no_op, len(part.indices), seconds, words)
        part = following
    client.end()
    replica.finish()


def part_gradient(
    problem: Problem,
    replica: Replica,
    part: Part,
    options: WorkerOptions,
    poll: Callable[[], object] | None,
) -> tuple[float, np.ndarray]:
    """Return the part's loss and its gradient times its weight in the minibatch.

    Args:
      problem: The problem of a table.
      replica: This worker's copy of the rows.
      part: This worker's part of a minibatch.
      options: How the worker computes and pushes.
      poll: Lets a colocated server serve between microbatches; None: there is none.
    """
    if not len(part.indices):
        return 0.0, np.empty((0, replica.table.shape[1]), np.float32)
    if options.microbatches == 1:
        loss, rows = problem.gradient(replica.table, part.batch)
        return loss, rows.values * np.float32(part.weight)
    loss, total = 0.0, []
    for piece in np.array_split(part.indices, options.microbatches):
        if len(piece):
            share = len(piece) / len(part.indices)
            piece_loss, grads = problem.gradient(replica.table, problem.take(piece))
            loss += piece_loss * share
            scaled = grads.values * np.float32(share * part.weight)
            total.append(Rows(grads.index, scaled))
        if poll:
            poll()
    rows, values = sum_rows(total)
    if len(total) == 1 or isinstance(rows, slice) or isinstance(part.rows, slice):
        return loss, values
    order = np.argsort(rows)  # touched rows are in any order
    return loss, values[order[np.searchsorted(rows, part.rows, sorter=order)]]


def filtered(
    replica: Replica,
    part: Part,
    grads: np.ndarray,
    options: WorkerOptions,
    counts: Counts,
    loss: float,
) -> PendingGradient:
    """Return the gradient to push: finite, and filtered; count what is left out.

    Args:
      replica: This worker's copy of the rows.
      part: This worker's part of a minibatch.
      grads: Gradient of the part's rows, times its weight.
      options: How the worker computes and pushes.
      counts: Receives the counters.
      loss: Loss of the part.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(grads.sum()) or np.isfinite(grads).all()
    if not finite:
        counts.nonfinite += 1
        if options.on_nonfinite == STOP:
            raise FloatingPointError(
                f"rank {replica.client.comm.rank}, clock {part.clock}: expected a "
                "finite gradient, got NaN or infinity; pass a lower --lr, or "
                "--on_nonfinite=skip"
            )
        none = slice(0, 0) if isinstance(part.rows, slice) else part.rows[:0]
        return PendingGradient(none, grads[:0], 0.0, loss, none)
    if options.row_filter is None:
        return PendingGradient(part.rows, grads, part.weight, loss, part.rows)
    if isinstance(part.rows, slice):
        raise BadInput("expected sparse rows for a row filter, got a dense problem")
    mask = options.row_filter(replica.table[part.rows], grads / np.float32(part.weight))
    counts.offered += len(part.rows)
    counts.sifted += len(part.rows) - int(mask.sum())
    return PendingGradient(
        part.rows[mask], grads[mask], part.weight, loss, part.rows, mask
    )


def push(
    replica: Replica, unpushed: list[PendingGradient], ends_clock: bool = True
) -> None:
    """Push the sum of several clocks' gradients; end the last clock if `ends_clock`."""
    weight = sum(gradient.weight for gradient in unpushed)
    loss = sum(gradient.loss for gradient in unpushed) / len(unpushed)
    replica.pushes += 1
    if len(unpushed) == 1:  # the server knows its keys from the pull
        (gradient,) = unpushed
        keys, grads, mask = gradient.read, gradient.grads, gradient.mask
    else:
        keys, grads = sum_rows(
            [Rows(filtered.rows, filtered.grads) for filtered in unpushed]
        )
        mask = None
    replica.client.push(keys, grads, weight, loss, ends_clock=ends_clock, has=mask)
