"""IMPALA (Espeholt 2018): actors send rollouts, learners send params.

    actor 1    ─ params v ─► T steps ─► rollout ┐         ┌─ params v+2 ─► T steps ─► …
    actor 2    ─ params v ─► T   steps   ─► rollout ┐     │
                                                │   │     │
    learner         update v-1 ─► update v ─► update v+1 ─► …        each of B rollouts

An actor plays T steps of N environments with one version of the params. The next
rollout continues these episodes. A rollout is also the request for the next params,
which the learner sends when its queue admits another rollout (`wire.plans.admission`):
the lag of every consumed rollout is at most K updates. The gradient of the problem
corrects for the lag by V-trace. Several learners are data parallel (`learner.py`).

With K = 0 learners and actors alternate, and the results are bit-identical to those of
a serial loop. The replay of a recorded run is bit-identical: the order in which
rollouts arrive is the only difference between two runs.

Per rollout: 2 messages, n + 2 words down for n parameters, and the bytes of the rollout
up. Actors have no state that must be saved: training continues if an actor dies.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dml.metrics.timer import Timer
from dml.models.policies.actor import Actor
from dml.strategies.actors.arrivals import Arrivals, Message
from dml.strategies.actors.learner import learn_or_act
from dml.strategies.actors.roles import Roles
from dml.strategies.actors.service import Service
from dml.strategies.loops.parameters import Update
from dml.strategies.synchronous import synchronous
from dml.types import CountedComm, Params, Play, Problem, Status, Step, no_op
from dml.types.messages import check_nbytes
from dml.types.ranges import Count, Seed, Size, Updates, checked
from dml.wire.comm.buffers import TreeLayout, pack, unpack
from dml.wire.comm.tags import Tag

HEADER = 2  # words of a message of params: the version as one 64-bit integer


@partial(checked, own=synchronous)
def impala(
    problem: Problem,
    batches: Iterable[Any],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    learners: Count = 1,
    batch: Size = 0,
    lag: Size = 1,
    seed: Seed = 0,
    version: Updates = 0,
    elastic: bool = False,
    **own: Any,
) -> Iterator[Step]:
    """Train by rollouts of actors.

    A learner yields a Step after every update, with its params. An actor yields one
    Step at the end, without params.

    Args:
      problem: Problem with `play`, whose gradient takes an array of rollouts.
      batches: An item per update, which is not read.
      update: Update of the params.
      comm: Learners and actors.
      timer: Measures the phases.
      learners: Number of learners, which are the first ranks.
      batch: Number B of rollouts of an update; 0: one per actor.
      lag: Largest number K of updates between acting and learning.
      seed: Seed of the environments and actions.
      version: Number of updates of an earlier run; its params are those of `problem`.
      elastic: Whether training continues when actors die.
      **own: Options of `synchronous` for the learners, such as reducer, shards, state.
    """

    def act(comm: CountedComm, plan: Roles, like: TreeLayout) -> Step:
        return play_rollouts(comm, plan, problem.play, like, seed=seed, timer=timer)

    yield from learn_or_act(
        problem,
        batches,
        update,
        comm=comm,
        timer=timer,
        act=act,
        serve=Trajectories,
        learners=learners,
        batch=batch,
        lag=lag,
        version=version,
        elastic=elastic,
        **own,
    )


class Trajectories(Service):
    """A learner's messages: rollouts in, params out; see Service."""

    def listen(self) -> Arrivals:
        for actor in sorted(self.actors):  # an actor requests nothing at the start
            self.queue.request(actor)
        return Arrivals(self.comm, self.play.dtype.itemsize, Tag.ROLLOUT)

    def publish(self, version: int, params: Params) -> None:
        """Use these params in further messages; send them to waiting actors."""
        # sends of earlier versions may be in progress: another buffer
        self.message = np.empty(HEADER + self.like.length, np.float32)
        self.message[:HEADER].view(np.int64)[0] = version
        pack(params, self.message[HEADER:])
        self.respond()

    def handle(self, message: Message) -> None:
        actor, rollout = message
        self.queue.arrive(actor, rollout)
        self.queue.request(actor)
        self.respond()

    def respond(self) -> None:
        for actor in self.queue.grants():
            self.send(self.message, actor, Tag.WEIGHTS)

    def end(self, actor: int) -> None:
        version = self.message[:HEADER].view(np.int64)[0]
        header = np.array([-1 - version], np.int64).view(np.float32)
        self.send(header, actor, Tag.WEIGHTS)


def play_rollouts(
    comm: CountedComm,
    plan: Roles,
    play: Play,
    like: TreeLayout,
    *,
    seed: int,
    timer: Timer,
) -> Step:
    """Play rollouts until the learner ends the run; return the only Step.

    Args:
      comm: All ranks.
      plan: Roles of the ranks.
      play: Acting part of the problem.
      like: Layout of the params.
      seed: Seed of the environments and actions.
      timer: Measures the phases.
    """
    learner, sent = plan.learner(comm.rank), comm.bytes_sent
    actor = Actor(play, seed, comm.rank - plan.learners)
    message = np.empty(HEADER + like.length, np.float32)
    rollout, status = np.zeros(1, play.dtype), Status()
    while True:
        with timer("wait"):
            comm.Recv(message, learner, Tag.WEIGHTS, status)
        head = message[:HEADER]
        check_nbytes(status, comm.rank, head.nbytes, message.nbytes)
        version = int(head.view(np.int64)[0])
        if version < 0:
            break
        check_nbytes(status, comm.rank, message.nbytes)
        with timer("play"):
            params = unpack(message[HEADER:], like, copy=False)
            actor.rollout(params, version, rollout[0])
            comm.platform.work(1)
        with timer("wire"):
            comm.Send(rollout.view(np.uint8), learner, Tag.ROLLOUT)
    words, measures = (comm.bytes_sent - sent) // 4, {"steps": actor.steps}
    rollouts = actor.rollouts
    return Step(-1 - version, 0.0, no_op, rollouts, timer.lap(), words, measures)
