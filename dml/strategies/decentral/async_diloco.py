"""Asynchronous DiLoCo (Liu 2024): an outer step for each change of a worker.

rank 0   θ ─ H updates ─► θ ─ H updates ─► θ ─ H updates ─► …    a fast worker
rank 1   θ ─ H       updates       ───────────────────────► …    a slow worker
                         each arrow ends in an outer step on rank 0

A worker starts from the newest outer parameters, and rank 0 applies the change when it
arrives, so that no worker waits for a slower one. Tasks are parts of the shards of all
ranks, assigned in the order of progress; fast workers have more tasks. Fraction
amplifies stale changes; by default it is added once per K arrivals of K workers
(delayed Nesterov).

With an aggregation count of K, all workers wait for each other, and the result is
bit-identical to that of `diloco` with the reducer exact(star). Elements sent per task:
n by its worker, and n by rank 0.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dml.data.feed import feed
from dml.data.lookahead import Lookahead
from dml.data.shards import microbatches
from dml.metrics.timer import Timer
from dml.strategies.decentral.barriers import BarrierSums, sum_over_ranks
from dml.strategies.decentral.outer import OuterState, outer_state
from dml.strategies.decentral.outer_server import (
    Outer,
    OuterClient,
    OuterServer,
    connect,
)
from dml.strategies.decentral.replicas import Mixing, Protocol, packed, start
from dml.strategies.loops.parameters import (
    TableParameters,
    Tree,
    Update,
    make_parameters,
)
from dml.strategies.loops.rounds import local_rounds
from dml.types import BadInput, CountedComm, Problem, Step, no_op
from dml.types.ranges import Count, Every, Fraction, Number, Size, Updates, checked
from dml.wire.comm.buffers import layout, unpack
from dml.wire.plans.tasks import ShardTask, Tasks


@checked
def async_diloco(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    outer_every: Every = 8,
    outer_lr: Number = 0.7,
    outer_momentum: Fraction = 0.9,
    momentum_every: Updates = 0,
    aggregation_count: Count = 1,
    discount: bool = False,
    dynamic: bool = False,
    barrier_every: Updates = 0,
    accumulate: Count = 1,
    prefetch: Size = 0,
    observe: Callable[[np.ndarray], object] = no_op,
    state: Any = None,
    memory: Any = None,
) -> Iterator[Step]:
    """Train by tasks of H updates; yield a Step after every barrier.

    Args:
      problem: Problem to train, equal on all ranks.
      batches: Indices of each global minibatch, equal on all ranks.
      update: Inner optimizer, or rule of rows; its state is local to each rank.
      comm: Ranks, K of them.
      timer: Measures the phases.
      outer_every: H.
      outer_lr: Outer learning rate η; 0.7 with delayed momentum, 0.07 without.
      outer_momentum: μ; 0: SGD.
      momentum_every: N, number of outer steps between two steps with momentum; 0: the
        number of outer steps in which K changes arrive; 1: Nesterov.
      aggregation_count: Number of changes in an outer step, whose workers wait for each
        other.
      discount: Whether a change that misses s outer steps has the weight 1/√(1 + s).
      dynamic: Whether slower workers receive shorter tasks, so that all take equally
        long.
      barrier_every: Number of minibatches between two barriers; 0: one barrier, at the
        end.
      accumulate: Number of microbatches of a shard.
      prefetch: Number of minibatches prepared in the background.
      observe: Called on rank 0 with the packed outer parameters after every outer step.
      state: State of the update in an earlier Step; None starts anew.
      memory: Leaves of `memory` in an earlier Step, of each rank of that run.
    """
    period = momentum_every or max(1, comm.size // aggregation_count)
    outer = Outer(
        outer_every,
        outer_lr,
        outer_momentum,
        period,
        aggregation_count,
        discount,
        dynamic,
    )
    check_arrivals(aggregation_count, comm.size)
    parameters = make_parameters(problem, update, state)
    like = layout(parameters.averaged()[0])
    protocol = Protocol(lambda vector, like: outer_state(vector), no_op)
    mixing = start(comm, parameters, protocol, like, memory)
    params = mixing.vector.copy()
    # saved arrays are read-only
    writable_state = OuterState(*map(np.array, mixing.state))
    server = connect(comm, params.copy(), writable_state, outer, observe)
    worker = Worker(
        problem, parameters, params, comm, timer, server, accumulate, prefetch
    )
    window, number = Lookahead(batches), 0
    while True:
        window.stop = number + barrier_every if barrier_every else sys.maxsize
        tasks = Tasks(comm.size, number, window.available)
        first = [tasks.assign(rank, outer_every) for rank in range(comm.size)]
        if not first[0].length:
            return
        sent = comm.bytes_sent
        server.begin(tasks)
        sums = worker.run(first[comm.rank], window)
        with timer("wait"):
            sums = sum_over_ranks(comm, sums)
        number += sums.updates // comm.size
        moments = parameters.averaged()[1]
        mixing = Mixing(mixing.round + 1, params.copy(), moments, writable_state)
        yield Step(
            number=number,
            loss=sums.loss,
            params=partial(unpack, mixing.vector, like),
            examples=sums.examples,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // params.itemsize,
            measures=sums.measures,
            state=parameters.state,
            memory=mixing.saved,
            replicas=True,
        )


@dataclass
class Worker:
    """The updates of this rank by its tasks.

    Attributes:
      problem: Problem to train.
      parameters: Parameters of this rank.
      params: Outer parameters θ at the start of the task, packed.
      comm: Ranks.
      timer: Measures the phases.
      server: Receives changes, and assigns tasks.
      accumulate: Number of microbatches of a shard.
      prefetch: Number of minibatches prepared in the background.
    """

    problem: Problem
    parameters: Tree | TableParameters
    params: np.ndarray
    comm: CountedComm
    timer: Timer
    server: OuterServer | OuterClient
    accumulate: int
    prefetch: int

    def run(self, task: ShardTask, window: Lookahead) -> BarrierSums:
        """Run a task and all that follow it; return the sums of their updates."""
        sums, like = BarrierSums(), layout(self.parameters.averaged()[0])
        while task.length:
            begin = self.comm.Wtime()
            sums = self.update(task, window, sums)
            seconds = (self.comm.Wtime() - begin) / task.length
            with self.timer("wire"):
                after, moments = packed(self.parameters, like)
                task = self.server.trade(self.params - after, seconds, self.params)
                self.parameters.assign((unpack(self.params, like), moments))
        return sums._replace(
            exchanges=self.server.exchanges, staleness=self.server.staleness
        )

    def update(
        self, task: ShardTask, window: Lookahead, sums: BarrierSums
    ) -> BarrierSums:
        """Update by the minibatches of a task; poll the server after each update."""
        split = partial(
            microbatches, rank=task.shard, size=self.comm.size, parts=self.accumulate
        )
        batches, put = window.take(task.first, task.length), self.parameters.put
        fed = feed(self.problem.take, batches, split, put, self.prefetch)
        for done in local_rounds(fed, self.parameters, self.comm, self.timer, 1):
            sums = sums.add(done, 1)
            with self.timer("wire"):
                self.server.poll()
        return sums


def check_arrivals(count: int, workers: int) -> None:
    """Raise BadInput if an outer step has more changes than workers."""
    if count > workers:
        raise BadInput(
            f"expected outer steps by the changes of 1 to {workers} workers, got "
            f"{count}; pass another aggregation count"
        )
