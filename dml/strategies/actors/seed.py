"""SEED (Espeholt 2020): actors send observations, learners send actions.

    actor 1    ─ o ─┐        ┌─ a ─► step ─ o ─┐        ┌─ a ─► step ─ …
    actor 2    ─ o ─┤        ├─ a ─► step ─ o ─┤        ├─ a ─► step ─ …
    learner         └ policy ┘                 └ policy ┘        update: B rollouts

The params stay on the learner, which computes the policy for all observations that have
arrived, with the newest params. The learner also assembles the rollouts, so steps of
one rollout may have different versions. Admission uses the version of the first step.
An actor whose next rollout is not admitted receives no answer: back-pressure.

Per rollout of T steps of N environments: 2T messages; T observations of N environments
up, with rewards and flags, and TN actions down. The words do not depend on the size of
the model; IMPALA sends n + 2 words of params per rollout, for n parameters.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dml.metrics.timer import Timer
from dml.models.policies.actor import copy_seeds, first_observations
from dml.strategies.actors.arrivals import Arrivals, Message
from dml.strategies.actors.assembly import Assembly, report_dtype
from dml.strategies.actors.learner import learn_or_act
from dml.strategies.actors.roles import Roles
from dml.strategies.actors.service import Service
from dml.strategies.loops.parameters import Update
from dml.strategies.synchronous import synchronous
from dml.types import CountedComm, Params, Play, Problem, Step, no_op
from dml.types.ranges import Count, Seed, Size, Updates, checked
from dml.wire.comm.buffers import TreeLayout, pack, unpack
from dml.wire.comm.tags import Tag


@partial(checked, own=synchronous)
def seed(
    problem: Problem,
    batches: Iterable[Any],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    learners: Count = 1,
    batch: Size = 0,
    lag: Size = 1,
    inference: Size = 0,
    seed: Seed = 0,
    version: Updates = 0,
    elastic: bool = False,
    **own: Any,
) -> Iterator[Step]:
    """Train by the steps of actors, whose actions the learners compute.

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
      inference: Largest number of actors whose actions are computed together; 0: all
        whose observations have arrived.
      seed: Seed of the environments and actions.
      version: Number of updates of an earlier run; its params are those of `problem`.
      elastic: Whether training continues when actors die.
      **own: Options of `synchronous` for the learners, such as reducer, shards, state.
    """

    def act(comm: CountedComm, plan: Roles, like: TreeLayout) -> Step:
        return step_environments(comm, plan, problem.play, seed, timer)

    yield from learn_or_act(
        problem,
        batches,
        update,
        comm=comm,
        timer=timer,
        act=act,
        serve=partial(Inference, seed=seed, most=inference),
        learners=learners,
        batch=batch,
        lag=lag,
        version=version,
        elastic=elastic,
        **own,
    )


class Inference(Service):
    """A learner's messages: observations in, actions out; see Service.

    Args:
      *service: Arguments of Service.
      seed: Seed of the actions.
      most: Largest number of actors whose actions are computed together; 0: all.
      **options: Options of Service.
    """

    def __init__(self, *service: Any, seed: int, most: int, **options: Any) -> None:
        self.seed, self.most = seed, most
        super().__init__(*service, **options)

    def listen(self) -> Arrivals:
        self.report, self.first = report_dtype(self.play), self.roles.learners
        self.assemblies = {actor: Assembly(self.play) for actor in self.actors}
        self.answers: list[int] = []  # actors whose actions are to be computed
        return Arrivals(self.comm, self.report.itemsize, Tag.OBSERVATIONS)

    def publish(self, version: int, params: Params) -> None:
        """Compute further actions with these params, also those of waiting actors."""
        vector = np.empty(self.like.length, np.float32)
        pack(params, vector)
        self.params, self.version = unpack(vector, self.like, copy=False), version
        self.respond()

    def handle(self, message: Message) -> None:
        actor, data = message
        assembly, begins = self.assemblies[actor], actor not in self.queue.playing
        if assembly.add(data.view(self.report)[0]):
            self.queue.arrive(actor, assembly.bytes)
            begins = True
        if begins:
            self.queue.request(actor)
            self.admit()
        else:
            self.answers.append(actor)
        if len(self.answers) == self.most:
            self.respond()

    def admit(self) -> None:
        """Begin the rollouts that the queue admits."""
        for actor in self.queue.grants():
            self.assemblies[actor].begin(actor - self.first)
            self.answers.append(actor)

    def respond(self) -> None:
        """Compute and send the actions of all actors in `answers`."""
        self.admit()  # a death may have ended a rollout
        actors, self.answers = self.answers, []
        actors = [actor for actor in actors if actor in self.actors]
        if not actors:
            return
        play, each = self.play, [self.assemblies[actor] for actor in actors]
        observations = np.concatenate([one.observations for one in each])
        draws = [
            play.draws(self.seed, actor - self.first, one.steps + one.t, play.copies)
            for actor, one in zip(actors, each, strict=True)
        ]
        actions, logits = play.act(self.params, observations, np.concatenate(draws))
        actions = np.asarray(actions, np.int32)
        for k, (actor, one) in enumerate(zip(actors, each, strict=True)):
            part = slice(k * play.copies, (k + 1) * play.copies)
            one.act(actions[part], logits[part], self.version)
            self.send(actions[part], actor, Tag.ACTIONS)

    def end(self, actor: int) -> None:
        last = np.full(self.play.copies, -1, np.int32)
        last[-1] = -1 - self.version
        self.send(last, actor, Tag.ACTIONS)


def step_environments(
    comm: CountedComm, plan: Roles, play: Play, seed: int, timer: Timer
) -> Step:
    """Step the environments until the learner ends the run; return the only Step.

    Args:
      comm: All ranks.
      plan: Roles of the ranks.
      play: Acting part of the problem.
      seed: Seed of the environments.
      timer: Measures the phases.
    """
    learner, sent = plan.learner(comm.rank), comm.bytes_sent
    seeds = copy_seeds(seed, comm.rank - plan.learners, play.copies)
    environments = play.environment.make(seeds)
    report = np.zeros(1, report_dtype(play))
    report["observations"] = first_observations(environments.reset(), play)
    actions, steps = np.empty(play.copies, np.int32), 0
    while True:
        with timer("wire"):
            comm.Send(report.view(np.uint8), learner, Tag.OBSERVATIONS)
        with timer("wait"):
            comm.Recv(actions, learner, Tag.ACTIONS)
        if actions[-1] < 0:
            break
        with timer("play"):
            outcome = environments.step(actions)
            for name, values in zip(outcome._fields, outcome, strict=True):
                report[name] = values
            comm.platform.work(1 / play.length)
        steps += 1
    words = (comm.bytes_sent - sent) // 4
    version, rollouts = -1 - int(actions[-1]), steps // play.length
    measures = {"steps": steps}
    return Step(version, 0.0, no_op, rollouts, timer.lap(), words, measures)
