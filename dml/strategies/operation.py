"""Operation parallelism: every rank has some columns of all rows.

          columns   r0   r1   r2        Each rank multiplies its columns, one all-reduce
      x  │░░░░│░░░░│░░░░│               adds up a minibatch's products, and each updates
      y  │░░░░│░░░░│░░░░│               its columns by the same products.
          ⟨x,y⟩ = · + · + ·

No parameter travels. Words an update: those of the all-reduce over B numbers, and the
norm of the rows if the loss has one.
"""

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from dml.data.feed import feed
from dml.metrics.timer import Timer
from dml.strategies.parameters import Update, mean
from dml.types import AllReduce, CountedComm, Problem, Shard, Step
from dml.wire.collectives.gather_arrays import gather_arrays
from dml.wire.comm.buffers import allocate


def operation(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    allreduce: AllReduce,
    batch: int,
    every: int | None = None,
) -> Iterator[Step]:
    """Train as serial does, each rank on its columns; yield a Step after every update.

    problem: what is learned, equal on all ranks; it needs products.
    batches: the indices of each minibatch's examples, equal on all ranks.
    update: a rule of rows that treats every column alone.
    comm: the ranks.
    timer: measures the phases.
    allreduce: sums the products.
    batch: examples of a minibatch, at most.
    every: updates of an epoch; a Step is an epoch. None: a Step is an update.
    """
    inner = problem.products
    table, gradient = inner.split(comm.rank, comm.size)
    shard: Shard = update(table)
    terms = inner.terms(comm.rank)
    buffer = allocate(comm, min(batch, problem.examples) + 1, table.dtype)
    losses: list[tuple[float, int]] = []
    sent = comm.bytes_sent
    fed = feed(problem.take, batches, lambda indices: [indices], ahead=0)
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
            shard.update(*grads)
        losses.append((loss, count))
        if number % (every or 1):
            continue
        yield Step(
            number=number,
            loss=mean(losses),
            params=partial(joined, problem, comm, shard),
            examples=sum(examples for _, examples in losses),
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // buffer.itemsize,
            epoch=every and number // every,
        )
        losses, sent = [], comm.bytes_sent


def joined(problem: Problem, comm: CountedComm, shard: Shard) -> np.ndarray | None:
    """Return the table of all columns on rank 0, None elsewhere; collective."""
    # transposed: parts may differ in the first axis only
    found = gather_arrays(comm, shard.values.T)
    return problem.products.join([part.T for part in found[0]]) if found else None
