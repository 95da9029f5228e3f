"""Ape-X (Horgan 2018): many actors, prioritised replay on its own ranks, one learner.

    actor 1  ε = 0.4     ─┐  transitions,               batches,
    actor 3  ε = 0.031   ─┼─ priorities ─► replay 1 ─┐  weights
    actor 5  ε = 0.0024  ─┘                          ├──────────► learner ─► Step
    actor 2, 4, 6        ─── ────────────► replay 2 ─┘ ◄────────── new priorities
         └──◄──────────────────── params on request ◄────────────────┘

Actors play with different shares ε of random actions, and compute the first priorities
of their transitions. The learner updates the network by prioritised batches. It sends
the new priorities of a batch with the request for a further batch before it computes
the gradient, and the next batch is in transit meanwhile. A replay keeps the ratio of
samples to transitions within bounds for any speeds of the processes (`replay.py`): an
actor sends a further message once an earlier message is credited. The replay of a
recorded run is bit-identical.

Words sent per update of B transitions of t words each, with P params: the replay
B (t + 3), with keys and weights; the learner 3 B, and P + 2 for each request of params,
of which an actor sends one per `pull_every` messages; the actors B (t + 1) / ratio. An
actor waits for params and credits, the learner for batches only.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dml.data.replay.buffer import ReplayBuffer
from dml.metrics.timer import Timer
from dml.strategies.actors.apex.actor import Acting, Player, exploration
from dml.strategies.actors.apex.learner import Learner
from dml.strategies.actors.apex.messages import LEARNER, Links, layouts
from dml.strategies.actors.apex.replay import Replay
from dml.strategies.actors.apex.settings import ApexSettings, Roles
from dml.strategies.loops.parameters import Update, make_parameters
from dml.types import CountedComm, Problem, Step, no_op
from dml.types.ranges import Updates, checked
from dml.wire.comm.buffers import layout


@partial(checked, own=ApexSettings)
def apex(
    problem: Problem,
    batches: Iterable[Any],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    state: Any = None,
    version: Updates = 0,
    **settings: Any,
) -> Iterator[Step]:
    """Train by prioritised replay.

    The learner yields a Step per `report_every` updates. Other ranks yield one Step at
    the end, whose measure `steps` counts the steps of an actor, each of all its copies.

    Args:
      problem: Problem with `play.errors`; its batches are `Replayed`.
      batches: An item per update, which is not read.
      update: optax optimizer.
      comm: All ranks: a learner, replays and actors.
      timer: Measures the phases.
      state: State of the update in an earlier Step; None: the initial state.
      version: Number of updates of an earlier run; its params are those of `problem`.
      **settings: Fields of ApexSettings that differ from the defaults.
    """
    own, sent = ApexSettings(**settings), comm.bytes_sent
    roles = Roles(comm.size, own.replays)
    own.check()
    roles.check()
    play, like = problem.play, layout(problem.params)
    assert play
    dtypes = layouts(play.dtype, play.length * play.copies, own.batch, like.length)
    links = Links(comm, max(own.window, own.prefetch), own.elastic)
    if comm.rank == LEARNER:
        parameters = make_parameters(problem, update, state)
        learner = Learner(
            problem,
            parameters,
            links,
            dtypes,
            roles=roles,
            settings=own,
            timer=timer,
            version=version,
        )
        for step in learner.run(batches):
            words = (comm.bytes_sent - sent) // np.float32().itemsize
            yield step._replace(words_sent=words)
            sent = comm.bytes_sent
        return
    measures = {"steps": 0}
    if comm.rank in roles.actors:
        index = roles.actors.index(comm.rank)
        epsilon = exploration(index, len(roles.actors), own.epsilon, own.spread)
        player = Player(play, comm.rank, epsilon, own)
        with timer("play"):
            Acting(links, dtypes, player, roles.replay_of(comm.rank), like, own).run()
        measures["steps"] = player.actor.steps
    else:
        capacity = own.capacity // own.replays
        buffer = ReplayBuffer(capacity, play.dtype, own.alpha, own.beta)
        with timer("replay"):
            Replay(links, dtypes, buffer, roles.actors_of(comm.rank), own).serve()
    words = (comm.bytes_sent - sent) // np.float32().itemsize
    yield Step(0, 0.0, no_op, 0, timer.lap(), words, measures)
