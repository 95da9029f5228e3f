"""Synchronous training with coded gradients: wrong terms of workers are not added.

    parts of a minibatch     worker 0   worker 1   worker 2     every part is computed
         0     1             0          1          0 …          by several workers
                             └── term ──┴── term ──┘            on ranks
                    exchange of slices, votes or syndromes
                    sum: the same update on all ranks

DRACO (Chen 2018): with repetition:s, groups of 2s+1 workers compute the same part, and
the term of a group is that of its majority. The run has the same bits under any attack
on at most s workers of each group. It equals `synchronous` with the star all-reduce on
n/(2s+1) ranks, bit for bit, on any number of ranks: parts are added in their order.
All workers must compute equal bits from equal examples: machines of one kind.
With cyclic:s, workers combine 2s+1 parts, and any s of all workers may be wrong; the
sum is decoded with rounding errors.

Each of n workers computes the gradients of (2s+1)/n of a minibatch, 2s+1 times those
of `synchronous`. `wire.reducers.robust.coded` states the rounds and the number of
elements sent per update.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from dml.data.feed import feed
from dml.data.shards import shards
from dml.metrics.timer import Timer
from dml.strategies.parameters import Update, make_parameters, restore_memory
from dml.strategies.vectors import ALL, make_vectors
from dml.types import BadInput, CountedComm, Memory, Problem, Step, identity
from dml.wire.plans.coding import DEFAULT, Code, make_code
from dml.wire.reducers.robust.coded import CodedSum, encode
from dml.wire.reducers.robust.estimate import Estimator
from dml.wire.reducers.robust.rule import Byzantine


def coded(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    code: str = DEFAULT,
    rule: Estimator | None = None,
    byzantine: Byzantine | None = None,
    workers: int = 0,
    columns: Sequence[slice] = ALL,
    prefetch: int = 0,
    state: Any = None,
    memory: Any = None,
) -> Iterator[Step]:
    """Train on all ranks in lockstep; yield a Step after every update.

    Args:
      problem: Problem to train, equal on all ranks.
      batches: Indices of each global minibatch, equal on all ranks.
      update: optax optimizer for a tree, or rule of rows for a table.
      comm: Ranks.
      timer: Measures the phases.
      code: repetition:FAULTY or cyclic:FAULTY.
      rule: Robust estimate of the mean of the groups' gradients, of repetition; None:
        the exact mean.
      byzantine: Attack on the gradients of the last workers, which are in different
        groups; None: none.
      workers: Number of workers; 0: one per rank. The training does not depend on the
        number of ranks.
      columns: Columns of a table's gradients that are not always zero.
      prefetch: Number of minibatches prepared in the background.
      state: State of the update in an earlier Step; None starts anew.
      memory: Leaves of `memory` in an earlier Step, of each rank of that run.
    """
    plan = make_code(code, check_workers(comm, workers))
    parameters = make_parameters(problem, update, state)
    vectors = make_vectors(parameters, columns)
    sums = CodedSum(comm, plan, vectors.length, rule=rule, byzantine=byzantine)
    own = sums.terms.own
    computed = sorted({part for worker in own for part in plan.parts_of(worker)})
    terms = np.zeros((len(own), vectors.length + 1), np.float32)
    done = restore_memory(comm, Memory(None, np.zeros(1, np.int64)), memory)
    split = split_parts(plan, computed)
    minibatches = feed(problem.take, batches, split, parameters.put, prefetch)
    for number, (count, parts) in enumerate(timer.waits("input", minibatches), 1):
        sent = comm.bytes_sent
        with timer("gradient"):
            gradients = {}
            for part, examples in zip(computed, parts, strict=True):
                vector = np.empty_like(terms[0])
                loss, grads = 0.0, None
                if examples:
                    loss, grads = parameters.mean_gradient([examples], count)
                vectors.pack(grads, vector[:-1])
                vector[-1] = loss
                gradients[part] = vector
            for term, worker in zip(terms, own, strict=True):
                term[:] = encode(plan, worker, gradients)
            share = sum(part.examples for part in parts if part) / count
            comm.platform.work(share * comm.size)
        with timer("wire"):
            total, wrong = sums.add_up(list(terms), int(done.common[0]))
            done = Memory(None, done.common + 1)
        with timer("update"):
            parameters.apply(parameters.put(vectors.unpack(total[:-1])))
        yield Step(
            number=number,
            loss=float(total[-1]),
            params=parameters.collect,
            examples=count,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // terms.itemsize,
            measures={"wrong_terms": wrong},
            state=parameters.state,
            memory=partial(identity, done),
            replicas=True,
        )


def check_workers(comm: CountedComm, workers: int) -> int:
    """Return the number of workers: by default one per rank."""
    if workers and workers < comm.size:
        raise BadInput(
            f"expected at least one worker for each of {comm.size} ranks, got "
            f"{workers}; pass workers=<{comm.size} or more>"
        )
    return workers or comm.size


def split_parts(
    code: Code, computed: Sequence[int]
) -> Callable[[np.ndarray], list[np.ndarray]]:
    """Return indices of a minibatch -> those of the parts that a rank computes."""

    def split(indices: np.ndarray) -> list[np.ndarray]:
        parts = shards(indices, code.parts)
        return [parts[part] for part in computed]

    return split
