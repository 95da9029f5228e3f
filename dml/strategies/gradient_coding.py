"""Gradient coding (Tandon 2017): an update does not wait for s stragglers.

    parts of a minibatch      worker 0   worker 1   worker 2   worker 3
      0 1 2 3                 0 1        1 2        2 3        3 0         s = 1
                              └── term ──┴── term ──┘          late
                              master: decodes the sum of all parts from any 3 terms
                              all ranks: the same update

The last rank is the master, which computes no gradients; the others are workers. Each
worker computes s+1 of n parts (`cyclic`, `random`), or one of n/(s+1) (`repetition`),
and sends their combination. As soon as the terms suffice, the master decodes their sum
and sends it to all ranks, which apply the same update: replicas have equal bits. A
worker whose term is late does not send it, or the master discards it. The worker then
applies the sums that it missed, and continues with the newest parameters. No other rank
waits for it.

With `repetition` the run has the same bits for any delays. It equals `synchronous` with
the star all-reduce on n/(s+1) ranks, bit for bit. `cyclic` and `random` round.
uncoded:0 waits for all workers. uncoded:s uses the first n-s parts of a minibatch; with
n/(n-s) times the examples in a minibatch, s workers are backup workers (Chen 2016).

`dml.wire.server.first_terms` states the rounds and words.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from dml.data.feed import FeedPart
from dml.data.shards import shards
from dml.metrics.timer import Timer
from dml.strategies.loops.parameters import (
    TableParameters,
    Tree,
    Update,
    make_parameters,
)
from dml.strategies.loops.vectors import (
    ALL,
    TableVectors,
    TreeVectors,
    make_vectors,
)
from dml.types import BadInput, Comm, CountedComm, Problem, Request, Step
from dml.types.ranges import checked
from dml.wire.comm.metered import uncounted
from dml.wire.plans.codes.coding import DEFAULT, Code
from dml.wire.plans.codes.decoding import make_plan
from dml.wire.reducers.robust.coded import encode
from dml.wire.server import first_terms

# (share of an update's computation, request) -> whether the computation ended before
# the request completed; None: it does not stop
Work: TypeAlias = Callable[[float, Request], bool | None]


@checked
def gradient_coding(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    code: str = DEFAULT,
    work: Work | None = None,
    columns: Sequence[slice] = ALL,
    state: Any = None,
) -> Iterator[Step]:
    """Train by the first terms that suffice; all ranks yield a Step per update.

    Steps are read to the end of the batches, before which all late terms are received.
    The measures of a Step are those of its rank: `unused_terms`, the number of terms
    that the master received and did not use, and `skipped`, whether a worker sent no
    term.

    Args:
      problem: Problem to train, equal on all ranks.
      batches: Indices of each global minibatch, equal on all ranks.
      update: optax optimizer for a tree, or rule of rows for a table.
      comm: Workers, and the master as the last rank.
      timer: Measures the phases.
      code: repetition:S, cyclic:S, random:S or uncoded:S for S stragglers.
      work: Delays this worker by its share of the computation of an update, where 1
        is an even share. It may stop when the request, the receive of the sum,
        completes. None: comm.platform.work, which does not stop.
      columns: Columns of a table's gradients that are not always zero.
      state: State of the update in an earlier Step; None starts anew.
    """
    workers = comm.size - 1
    if not workers:
        raise BadInput(
            "expected a master and at least one worker, got one rank; pass "
            "--simulate=5, or start ranks by mpirun -n 5"
        )
    plan = make_plan(code, workers)
    parameters = make_parameters(problem, update, state)
    vectors = make_vectors(parameters, columns)
    length, run = vectors.length + 1, count_run(comm)
    role: MasterRole | WorkerRole
    if comm.rank == workers:
        role = MasterRole(first_terms.Master(comm, plan, length, run), timer)
    else:
        gradients = Gradients(problem, parameters, vectors, plan.code, comm.rank)
        stop = work or partial(without_stop, comm)
        link = first_terms.Worker(comm, length, run)
        role = WorkerRole(link, gradients, timer, stop)
    for number, (indices, last) in enumerate(marked(batches), 1):
        sent = comm.bytes_sent
        total, measures = role.add_up(indices, number)
        with timer("update"):
            parameters.apply(parameters.put(vectors.unpack(total[:-1])))
        seconds = timer.lap()
        if last:  # not after the Step: a caller that stops there does not resume
            role.link.finish()
        yield Step(
            number=number,
            loss=float(total[-1]),
            params=parameters.collect,
            examples=len(indices),
            seconds=seconds,
            words_sent=(comm.bytes_sent - sent) // total.itemsize,
            measures=measures,
            state=parameters.state,
            replicas=True,
        )


class MasterRole:
    """The updates of the master.

    Args:
      link: Connection to the workers.
      timer: Measures the phases.
    """

    def __init__(self, link: first_terms.Master, timer: Timer):
        self.link, self.timer = link, timer

    def add_up(
        self, indices: np.ndarray, number: int
    ) -> tuple[np.ndarray, dict[str, float]]:
        """Return the sum of an update, and its measures."""
        with self.timer("wire"):
            total = self.link.collect(number)
            self.link.send(total)
        return total, {"unused_terms": self.link.unused}


class WorkerRole:
    """The updates of a worker.

    Args:
      link: Connection to the master.
      gradients: Computes the worker's terms.
      timer: Measures the phases.
      work: As in `gradient_coding`.
    """

    def __init__(
        self,
        link: first_terms.Worker,
        gradients: "Gradients",
        timer: Timer,
        work: Work,
    ):
        self.link, self.gradients = link, gradients
        self.timer, self.work = timer, work
        self.behind = False  # whether the next sum may have arrived

    def add_up(
        self, indices: np.ndarray, number: int
    ) -> tuple[np.ndarray, dict[str, float]]:
        """Send the term unless it is late; return the sum, and its measures."""
        late = self.behind and self.link.sum_has_arrived()
        arriving, total = self.link.expect()
        if not late:
            with self.timer("gradient"):
                term = self.gradients.term(indices)
                ended = self.work(self.gradients.share(indices), arriving)
            late = arriving.Test() if ended is None else not ended
            self.behind = late and ended is None
        with self.timer("wire"):
            if not late:
                self.link.send(term, number)
            arriving.Wait()
        return total, {"skipped": float(late)}


class Gradients:
    """The terms of a worker.

    Args:
      problem: The problem.
      parameters: Parameters in training.
      vectors: Conversion of gradients to vectors.
      code: The code.
      worker: Number of the worker.
    """

    def __init__(
        self,
        problem: Problem,
        parameters: Tree | TableParameters,
        vectors: TreeVectors | TableVectors,
        code: Code,
        worker: int,
    ):
        self.take, self.parameters, self.vectors = problem.take, parameters, vectors
        self.code, self.worker = code, worker
        self.parts = code.parts_of(worker).tolist()

    def share(self, indices: np.ndarray) -> float:
        """Return the worker's examples relative to an even share of a minibatch."""
        parts = shards(indices, self.code.parts)
        examples = sum(len(parts[part]) for part in self.parts)
        return examples / len(indices) * self.code.workers

    def term(self, indices: np.ndarray) -> np.ndarray:
        """Return the combination of the gradients of the worker's parts."""
        parts = shards(indices, self.code.parts)
        by_part = {
            part: self.gradient(parts[part], len(indices)) for part in self.parts
        }
        return encode(self.code, self.worker, by_part)

    def gradient(self, indices: np.ndarray, total: int) -> np.ndarray:
        """Return the gradient of a part, weighted by its share of `total` examples."""
        vector = np.zeros(self.vectors.length + 1, np.float32)
        if len(indices):
            part = FeedPart(len(indices), self.parameters.put(self.take(indices)))
            vector[-1], grads = self.parameters.mean_gradient([part], total)
            self.vectors.pack(grads, vector[:-1])
        return vector


def without_stop(comm: Comm, share: float, unless: Request) -> None:
    comm.platform.work(share)


def marked(batches: Iterable[np.ndarray]) -> Iterator[tuple[np.ndarray, bool]]:
    """Yield the minibatches, and whether each is the last one."""
    iterator = iter(batches)
    batch = next(iterator, None)
    while batch is not None:
        following = next(iterator, None)
        yield batch, following is None
        batch = following


def count_run(comm: CountedComm) -> int:
    """Return the number of this run among those of the communicator."""
    calls = uncounted(comm).cache.calls
    calls["gradient_coding"] = calls.get("gradient_coding", 0) + 1
    return calls["gradient_coding"]
