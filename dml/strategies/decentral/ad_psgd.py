"""Asynchronous decentralised SGD (AD-PSGD, Lian 2018): averages of random pairs.

    active   ─ request ─ gradient ─ update ─ x ← x - d ─ request ─ gradient ─ update ─ …
    passive  ─ gradient ─ update ─ x ← x + d ─ gradient ─ update ─ x ← x + d ─ …

d is half of the difference of two replicas. No rank waits for another between two
barriers: an active rank continues to update between its request and the reply.
`staleness` is the mean number of these updates. Averages do not change the sum of all
replicas.

Elements sent: n per average by each of the two ranks.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.decentral.barriers import BarrierSums, sum_over_ranks
from dml.strategies.decentral.replicas import (
    distance,
    mean_params,
    mix,
    packed,
    start,
    stateless,
)
from dml.strategies.loops.parameters import Update, make_parameters
from dml.strategies.loops.rounds import local_rounds, local_shards
from dml.types import CountedComm, Problem, Step, no_op
from dml.types.ranges import Count, Every, Seed, Size, Updates, checked
from dml.wire.averaging.pairs import pair_averages
from dml.wire.comm.buffers import layout
from dml.wire.plans.averaging.graphs import topology as find_topology
from dml.wire.plans.averaging.sides import sides


@checked
def ad_psgd(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    topology: str = "complete",
    every: Every = 1,
    barrier_every: Updates = 0,
    seed: Seed = 0,
    accumulate: Count = 1,
    prefetch: Size = 0,
    consensus: bool = False,
    observe: Callable[[np.ndarray], object] = no_op,
    state: Any = None,
    memory: Any = None,
) -> Iterator[Step]:
    """Train replicas that are averaged in pairs; yield a Step after every barrier.

    Args:
      problem: Problem to train, equal on all ranks.
      batches: Indices of each global minibatch. Ranks may have different numbers of
        minibatches: the number of a Step is the mean over ranks.
      update: optax optimizer for a tree, or rule of rows for a table; its state is not
        averaged.
      comm: Ranks.
      timer: Measures the phases.
      topology: Text of `graphs.topology`.
      every: Number of updates between two exchanges.
      barrier_every: Number of updates of this rank between two barriers, which may
        differ between ranks; 0: one barrier, at the end.
      seed: Random seed of the choice of neighbours.
      accumulate: Number of microbatches of a rank's shard.
      prefetch: Number of minibatches prepared in the background.
      consensus: Whether each Step has the measure `consensus`, the mean squared
        distance of replicas to their mean.
      observe: Called with the packed parameters of this rank after every exchange.
      state: State of the update in an earlier Step; None starts anew.
      memory: Leaves of `memory` in an earlier Step, of each rank of that run.
    """
    side = sides(find_topology(topology, comm.size))[comm.rank]
    parameters = make_parameters(problem, update, state)
    like = layout(parameters.averaged()[0])
    pairs = pair_averages(comm, side, packed(parameters, like)[0], seed)
    exchange = stateless(lambda comm, vector, t: pairs.exchange(vector, t))
    settle = stateless(lambda comm, vector, t: pairs.settle(vector))
    mixing = start(comm, parameters, exchange, like, memory)
    shards = local_shards(problem, batches, parameters, comm, accumulate, prefetch)
    rounds = local_rounds(shards, parameters, comm, timer, every)
    own = updates = 0  # of this rank, and of all ranks
    while True:
        sums, sent = BarrierSums(), comm.bytes_sent
        for done in islice(rounds, -(-barrier_every // every) or None):
            sums, own = sums.add(done, done.number - own), done.number
            with timer("wire"):
                mixing = mix(comm, parameters, exchange, like, mixing)
            observe(mixing.vector)
        with timer("wait"):
            mixing = mix(comm, parameters, settle, like, mixing)
            counts = pairs.reset()
            sums = sums._replace(exchanges=counts[0], staleness=counts[1])
            sums = sum_over_ranks(comm, sums)
        if not sums.updates:  # of any rank
            return
        updates += sums.updates
        vector = mixing.vector
        spread = {"consensus": distance(comm, vector)} if consensus else {}
        yield Step(
            number=updates // comm.size,
            loss=sums.loss,
            params=partial(mean_params, comm, vector, like),
            examples=sums.examples,
            seconds=timer.lap(),
            words_sent=(comm.bytes_sent - sent) // vector.itemsize,
            measures=sums.measures | spread,
            state=parameters.state,
            memory=mixing.saved,
        )
