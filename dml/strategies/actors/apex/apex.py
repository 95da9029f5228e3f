"""Ape-X (Horgan 2018): many actors, prioritised replay on its own ranks, one learner.

    actor 1  ε = 0.4      ─┐  transitions,             batches,
    actor 2  ε = 0.02     ─┼─ priorities ─► replay ─┐  weights
    actor 3  ε = 0.0007   ─┘                        ├──────────► learner ─► Step
    actor 4 ...           ─── ───────────► replay ─┘ ◄────────── new priorities
         └──◄────────────────── params on request ◄───────────────┘

Actors play with different shares of random actions, and compute the first priorities
of their transitions, so that new ones need not all be sampled. The learner updates the
network by prioritised batches, and returns their new priorities with the request of a
further batch; one batch is in transit while it computes. A replay keeps the ratio of
samples to transitions within bounds (`replay.py`), and an actor sends a further
message once an earlier one is credited, so the result depends on the number of updates
and not on the speed of processes. Runs that are recorded replay bit for bit.

Words sent per update of B transitions of t words each, with P params: the replay
B (t + 3), with keys and weights; the learner 3 B, and P + 2 for each request of params,
of which an actor has one in `pull_every` messages; the actors B (t + 1) / ratio. An
actor waits for params and credits, the learner for batches only.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dml.data.replay.buffer import ReplayBuffer
from dml.metrics.timer import Timer
from dml.strategies.actors.apex.actor import Acting, Player, exploration
from dml.strategies.actors.apex.learner import Learner
from dml.strategies.actors.apex.messages import LEARNER, Links, layouts
from dml.strategies.actors.apex.replay import Replay
from dml.strategies.actors.apex.settings import Roles, Settings
from dml.strategies.parameters import Update, make_parameters
from dml.types import CountedComm, Problem, Step, no_op
from dml.wire.comm.buffers import layout


def apex(
    problem: Problem,
    batches: Iterable[Any],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    state: Any = None,
    version: int = 0,
    **settings: Any,
) -> Iterator[Step]:
    """Train by prioritised replay.

    The learner yields a Step for several updates. Other ranks yield one at the end,
    whose measure `steps` is the number of steps of their environments.

    Args:
      problem: Problem with `play` and priorities; its batches are `Replayed`.
      batches: An item for each update; rank 0 counts them.
      update: optax optimizer.
      comm: A learner, replays and actors.
      timer: Measures the phases.
      state: State of the update in an earlier Step; None starts anew.
      version: Number of updates of an earlier run; its params are those of `problem`.
      **settings: Fields of Settings that differ from the defaults.
    """
    own, sent = Settings(**settings), comm.bytes_sent
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
        measures["steps"] = player.actor.steps * play.copies
    else:
        capacity = own.capacity // own.replays
        buffer = ReplayBuffer(capacity, play.dtype, own.alpha, own.beta)
        with timer("replay"):
            Replay(links, dtypes, buffer, roles.actors_of(comm.rank), own).serve()
    words = (comm.bytes_sent - sent) // np.float32().itemsize
    yield Step(0, 0.0, no_op, 0, timer.lap(), words, measures)
