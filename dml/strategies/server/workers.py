"""A worker's loop over clocks: read rows, compute a gradient, push it.

    read rows ─► gradient ─► push, end the clock ─► read rows ─► …

With prefetch a worker requests the next rows before it computes the gradient. Elements
sent per clock: the rows of each worker's part of the minibatch from the servers, and
their gradient to the servers.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np

from dml.data.shards import shard
from dml.metrics.timer import Timer
from dml.types import BadInput, Problem, Rows, Step, no_op
from dml.types.ranges import Count, Every, OneOf
from dml.wire.reducers.rows import Keys, sum_rows
from dml.wire.server.replica import Reading, Replica

RowFilter = Callable[[np.ndarray, np.ndarray], np.ndarray]  # rows, grads -> mask
SKIP, STOP, PUSH = "skip", "stop", "push"


class WorkerOptions(NamedTuple):
    """How a worker computes and pushes.

    Attributes:
      push_period: Number of clocks between two pushes; a push has the sum of their
        gradients.
      prefetch: Whether the next rows are requested before the gradient is computed.
      microbatches: Number of microbatches of a worker's part of a minibatch; a
        colocated server serves between them.
      on_nonfinite: SKIP, STOP or PUSH at a gradient that is not finite.
      row_filter: (rows, gradients) -> mask of the rows to push; None pushes all.
    """

    push_period: Every = 1
    prefetch: bool = False
    microbatches: Count = 1
    on_nonfinite: Annotated[str, OneOf((SKIP, STOP, PUSH))] = STOP
    row_filter: RowFilter | None = None


class Counts:
    """Counters and seconds of a worker.

    Attributes:
      nonfinite: Number of gradients with NaN or infinity.
      offered: Number of rows of gradients before the row filter.
      filtered: Number of these rows that the row filter removed.
      skipped_clocks: Number of clocks without a gradient of this worker.
      waited: Seconds in which it waited for rows.
      computed: Seconds in which it computed gradients.
    """

    def __init__(self) -> None:
        self.nonfinite = self.filtered = self.offered = self.skipped_clocks = 0
        self.waited = self.computed = 0.0


class MinibatchPart(NamedTuple):
    """A worker's part of a minibatch."""

    clock: int
    indices: np.ndarray  # of the examples
    batch: Any  # problem.take(indices)
    rows: Keys  # rows that the examples touch
    weight: float  # share of the minibatch's examples


class PendingGradient(NamedTuple):
    """A gradient to push."""

    rows: Keys  # rows to push
    grads: np.ndarray  # multiplied by the weight
    weight: float  # share of the minibatch's examples
    loss: float
    read: Keys  # rows that were read
    mask: np.ndarray | None = None  # mask of the rows read that are pushed; None: all


class MinibatchParts:
    """A worker's parts of the minibatches, in order."""

    def __init__(
        self, problem: Problem, batches: Iterable[np.ndarray], worker: int, workers: int
    ):
        self.problem, self.batches = problem, enumerate(batches)
        self.worker, self.workers = worker, workers

    def part(self, clock: int) -> MinibatchPart | None:
        """Return the part in the minibatch of this clock; None after the last clock.

        Clocks must increase from call to call; the minibatches between are skipped.
        """
        for number, minibatch in self.batches:
            if number == clock:
                indices = shard(minibatch, self.worker, self.workers)
                weight = len(indices) / len(minibatch)
                if not len(indices):
                    return MinibatchPart(clock, indices, None, np.empty(0, int), weight)
                batch = self.problem.take(indices)
                rows = touched_rows(self.problem, batch)
                return MinibatchPart(clock, indices, batch, rows, weight)
        return None


def touched_rows(problem: Problem, batch: Any) -> Keys:
    """Return the rows that a batch touches; all rows if `problem.touched` is None."""
    return problem.touched(batch) if problem.touched else slice(0, len(problem.params))


def worker_steps(
    parts: MinibatchParts,
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
    part = parts.part(client.clock)
    reading: Reading | None = None
    unpushed: list[PendingGradient] = []
    while part:
        bytes_before = comm.bytes_sent
        with timer("wait"):
            reading = reading or replica.begin_read(part.rows, part.clock)
            replica.finish_read(reading, part.rows, part.clock)
        if replica.rule.backups and replica.clock > part.clock:
            # the other workers are ahead by several clocks: skip to their clock
            if unpushed:
                push(replica, unpushed, ends_clock=False)
                unpushed = []
            counts.skipped_clocks += replica.clock - part.clock
            client.clock = replica.clock
            reading = None
            part = parts.part(client.clock)
            continue
        following = parts.part(part.clock + 1)
        reading = None
        if options.prefetch and following:
            with timer("wire"):
                reading = replica.begin_read(following.rows, following.clock)
        with timer("gradient"):
            loss, grads = part_gradient(parts.problem, replica, part, options, poll)
            comm.platform.work(part.weight * parts.workers)
        with timer("wire"):
            pending = filter_gradient(replica, part, grads, options, counts, loss)
            unpushed.append(pending)
            replica.add_gradient(pending.rows, pending.grads, pending.weight)
            if len(unpushed) == options.push_period or not following:
                push(replica, unpushed)
                unpushed = []
            else:
                client.end_clock()
        seconds = timer.lap()
        counts.waited += seconds.get("wait", 0.0)
        counts.computed += seconds.get("gradient", 0.0)
        words = (comm.bytes_sent - bytes_before) // 4
        yield Step(part.clock + 1, loss, no_op, len(part.indices), seconds, words)
        part = following
    client.end()
    replica.finish()


def part_gradient(
    problem: Problem,
    replica: Replica,
    part: MinibatchPart,
    options: WorkerOptions,
    poll: Callable[[], object] | None,
) -> tuple[float, np.ndarray]:
    """Return the loss of the part, and its gradient times its weight.

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
    loss = 0.0
    terms = []
    for indices in np.array_split(part.indices, options.microbatches):
        if len(indices):
            share = len(indices) / len(part.indices)
            mean_loss, grads = problem.gradient(replica.table, problem.take(indices))
            loss += mean_loss * share
            scaled = grads.values * np.float32(share * part.weight)
            terms.append(Rows(grads.index, scaled))
        if poll:
            poll()
    rows, values = sum_rows(terms)
    if len(terms) == 1 or isinstance(rows, slice) or isinstance(part.rows, slice):
        return loss, values
    # return the values in the order of part.rows, which need not be sorted
    order = np.argsort(rows)
    return loss, values[order[np.searchsorted(rows, part.rows, sorter=order)]]


def filter_gradient(
    replica: Replica,
    part: MinibatchPart,
    grads: np.ndarray,
    options: WorkerOptions,
    counts: Counts,
    loss: float,
) -> PendingGradient:
    """Return the gradient to push: the filtered rows, or no rows if it is not finite.

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
    if not finite and options.on_nonfinite != PUSH:
        counts.nonfinite += 1
        if options.on_nonfinite == STOP:
            raise FloatingPointError(
                f"rank {replica.client.comm.rank}, clock {part.clock}: expected a "
                "finite gradient, got NaN or infinity; pass a lower --lr, or "
                "--on_nonfinite=skip"
            )
        no_rows = slice(0, 0) if isinstance(part.rows, slice) else part.rows[:0]
        return PendingGradient(no_rows, grads[:0], 0.0, loss, no_rows)
    if options.row_filter is None:
        return PendingGradient(part.rows, grads, part.weight, loss, part.rows)
    if isinstance(part.rows, slice):
        raise BadInput(
            "expected a problem whose minibatches touch some rows, got one whose "
            "minibatches touch all rows; pass no row filter"
        )
    mask = options.row_filter(replica.table[part.rows], grads / np.float32(part.weight))
    counts.offered += len(part.rows)
    counts.filtered += len(part.rows) - int(mask.sum())
    return PendingGradient(
        part.rows[mask], grads[mask], part.weight, loss, part.rows, mask
    )


def push(
    replica: Replica, unpushed: list[PendingGradient], ends_clock: bool = True
) -> None:
    """Push the sum of the gradients of several clocks.

    Args:
      replica: This worker's copy of the rows.
      unpushed: Gradients to push, at least one.
      ends_clock: Whether the push also ends the worker's clock.
    """
    weight = sum(gradient.weight for gradient in unpushed)
    loss = sum(gradient.loss for gradient in unpushed) / len(unpushed)
    replica.pushes += 1
    if len(unpushed) == 1:  # the servers store the list of keys since the pull
        (gradient,) = unpushed
        keys, grads, mask = gradient.read, gradient.grads, gradient.mask
    else:
        keys, grads = sum_rows([Rows(term.rows, term.grads) for term in unpushed])
        mask = None
    replica.client.push(keys, grads, weight, loss, ends_clock=ends_clock, has=mask)
