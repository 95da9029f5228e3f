"""Operation parallelism: every rank stores some columns of all rows.

          columns   r0   r1   r2        Each rank computes the inner products over its
      x  │░░░░│░░░░│░░░░│               columns. One all-reduce sums the products of a
      y  │░░░░│░░░░│░░░░│               minibatch. Each rank updates its columns with
          ⟨x,y⟩ = · + · + ·             the sums.

No parameters are sent. Words per update: those of the all-reduce over B products, plus
one for the norm of the rows if the loss has a norm.
"""

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from dml.data.feed import feed
from dml.metrics.timer import Timer
from dml.strategies.loops.parameters import Update, mean_loss, row_rule
from dml.types import AllReduce, Comm, CountedComm, Problem, Rows, Shard, Step
from dml.types.ranges import Every, Large, checked
from dml.wire.collectives.gather_arrays import gather_arrays
from dml.wire.comm.buffers import allocate


@checked
def operation(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    allreduce: AllReduce,
    batch: Large,
    every: Every | None = None,
) -> Iterator[Step]:
    """Train as `serial`, each rank on its columns; yield a Step after every update.

    Args:
      problem: Problem to train, equal on all ranks; it needs `products`.
      batches: Indices of each minibatch's examples, equal on all ranks.
      update: Rule of rows, or optax optimizer, that treats columns independently.
      comm: Ranks.
      timer: Measures the phases.
      allreduce: Sums the products.
      batch: Greatest number of examples in a minibatch.
      every: Number of updates in an epoch, after which a Step is yielded; None yields a
        Step after every update.
    """
    inner = problem.products
    table, terms, gradient = inner.split(comm.rank, comm.size)
    whole = hasattr(update, "init")  # optax
    shard: Shard = row_rule(update)(table)
    buffer = allocate(comm, min(batch, problem.examples) + 1, table.dtype)
    losses: list[tuple[float, int]] = []
    sent = comm.bytes_sent
    fed = feed(problem.take, batches, lambda indices: [indices], prefetch=0)
    for number, (count, parts) in enumerate(timer.waits("input", fed), 1):
        (part,) = parts
        assert part
        with timer("gradient"):
            comm.platform.work(0.5)
            own = terms(shard.values, part.batch)
            products = buffer[: len(own)]
            products[:] = own
        with timer("wire"):
            allreduce(comm, products, op=np.add)
        with timer("gradient"):
            comm.platform.work(0.5)
            loss, grads = gradient(shard.values, part.batch, products)
        with timer("update"):
            shard.update(*(filled(grads, table) if whole else grads))
        losses.append((loss, count))
        if number % (every or 1):
            continue
        yield Step(
            number=number,
            loss=mean_loss(losses),
            params=partial(joined, problem, comm, shard.values),
            examples=sum(examples for _, examples in losses),
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // buffer.itemsize,
            epoch=every and number // every,
        )
        losses, sent = [], comm.bytes_sent


def filled(grads: Rows, table: np.ndarray) -> Rows:
    """Return the gradients of all rows; those of other rows are zero."""
    every = np.zeros_like(table)
    every[grads.index] = grads.values
    return Rows(slice(0, len(table)), every)


def joined(problem: Problem, comm: Comm, values: np.ndarray) -> np.ndarray | None:
    """Return the table of all columns on rank 0, None elsewhere; collective."""
    # lengths may differ in the first axis
    gathered = gather_arrays(comm, values.T)
    if gathered is None:
        return None
    return problem.products.join([part.T for part in gathered[0]])
