"""A learner: `synchronous` training on the rollouts of actors.

    rollouts of its actors ─► gradient ─┐
                                        ├─ reducer ─► equal updates ─► params
    other learners ─────────► gradient ─┘                              to actors

The rollouts of an update take the place of a minibatch. Of B rollouts, learner l of L
has the numbers lB/L to (l+1)B/L - 1. All learners have equal params.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.actors.episodes import Episodes, EpisodeSums
from dml.strategies.actors.roles import Roles, roles
from dml.strategies.actors.service import Service
from dml.strategies.loops.parameters import Update
from dml.strategies.synchronous import synchronous
from dml.types import BadInput, Comm, CountedComm, Params, Problem, Step, identity
from dml.wire.collectives import tree_allreduce
from dml.wire.comm.buffers import TreeLayout, layout
from dml.wire.comm.metered import uncounted
from dml.wire.comm.surviving import Surviving
from dml.wire.reducers.exact import exact

# (all ranks, roles, layout of the params) -> the only Step of an actor
Act = Callable[[CountedComm, Roles, TreeLayout], Step]
# (all ranks, roles, play, layout of the params, *, version, elastic) -> service
Serve = Callable[..., Service]


def learn_or_act(
    problem: Problem,
    batches: Iterable[Any],
    update: Update,
    *,
    comm: CountedComm,
    timer: Timer,
    act: Act,
    serve: Serve,
    learners: int,
    batch: int,
    lag: int,
    version: int,
    elastic: bool,
    **own: Any,
) -> Iterator[Step]:
    """Train on the learners, act on the other ranks; see `impala` for the arguments.

    Args:
      act: Plays on an actor until the end of the run.
      serve: Makes the service of a learner.
    """
    plan = roles(comm.size, learners, batch, lag)
    if elastic:
        comm = Surviving(comm)
    group: Any = comm.Split(int(comm.rank >= learners), comm.rank)
    like = params_layout(problem)
    if comm.rank >= learners:
        yield act(comm, plan, like)
        return
    yield from learn(
        problem,
        batches,
        update,
        service=serve(comm, plan, problem.play, like, version=version, elastic=elastic),
        roles=plan,
        learners=group,
        timer=timer,
        version=version,
        **{"reducer": exact(tree_allreduce), **own},
    )


def learn(
    problem: Problem,
    batches: Iterable[Any],
    update: Update,
    *,
    service: Service,
    roles: Roles,
    learners: CountedComm,
    timer: Timer,
    version: int = 0,
    **own: Any,
) -> Iterator[Step]:
    """Train on rollouts; yield a Step after every update; at the end, end the actors.

    Args:
      problem: Problem whose `gradient` takes an array of rollouts.
      batches: An item per update, which is not read.
      update: Update of the params.
      service: Rollouts of this learner's actors.
      roles: Roles of all ranks.
      learners: Communicator of the learners.
      timer: Measures the phases; `input` is the wait for rollouts.
      version: Number of updates of an earlier run.
      **own: Options of `synchronous`.
    """
    source = Rollouts(problem, batches, service, roles, learners)
    service.publish(version, problem.params)
    steps = synchronous(
        source.problem(), source, update, comm=learners, timer=timer, **own
    )
    sent = learners.bytes_sent
    try:
        for step in steps:
            with timer("wire"):
                service.publish(version + step.number, step.params())
                measures = source.measures(learners)
            yield step._replace(
                number=version + step.number,
                words_sent=(learners.bytes_sent - sent) // 4,
                measures={**step.measures, **measures},
            )
            sent = learners.bytes_sent
    except GeneratorExit:  # the caller needs no further Steps
        pass
    service.finish()


class Rollouts:
    """The rollouts of the current update, as a minibatch of `synchronous`.

    Args:
      problem: The problem.
      batches: An item per update.
      service: Rollouts of this learner's actors.
      roles: Roles of all ranks.
      learners: Communicator of the learners.
    """

    def __init__(
        self,
        problem: Problem,
        batches: Iterable[Any],
        service: Service,
        roles: Roles,
        learners: Comm,
    ) -> None:
        self.full, self.batches, self.service = problem, batches, service
        self.roles, self.episodes = roles, Episodes()
        self.first = learners.rank * (roles.batch // roles.learners)
        self.rollouts = np.empty(0, service.play.dtype)

    def problem(self) -> Problem:
        """Return the problem whose minibatches are numbers of rollouts."""
        return Problem(
            self.full.params,
            self.full.examples,
            self.gradient,
            self.full.evaluate,
            identity,
            touched=self.full.touched,
        )

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield the numbers of the rollouts of each update, after their arrival."""
        for _ in self.batches:
            self.rollouts = self.service.take()
            version = self.service.queue.admission.version - 1
            lags = version - self.rollouts["versions"]
            assert lags.min() >= 0 and lags.max() <= self.roles.lag, lags
            self.lag_max = int(lags.max())
            queued = len(self.service.queue)
            self.sums = self.episodes.sums(self.rollouts, version, queued)
            yield np.arange(self.roles.batch)

    def gradient(self, params: Params, numbers: Any) -> tuple[Any, Any]:
        """Return the loss and gradient of consecutive rollouts."""
        numbers = np.asarray(numbers)
        start, stop = numbers[0] - self.first, numbers[-1] + 1 - self.first
        return self.full.gradient(params, self.rollouts[start:stop])

    def measures(self, learners: CountedComm) -> dict[str, float]:
        """Return the measures of the update; messages for them are not counted."""
        if learners.size == 1:
            return self.sums.measures(self.lag_max)
        buffer = np.array(self.sums)
        tree_allreduce(uncounted(learners), buffer)
        largest = np.array([self.lag_max])
        tree_allreduce(uncounted(learners), largest, np.maximum)
        return EpisodeSums(*buffer.tolist()).measures(int(largest[0]))


def params_layout(problem: Problem) -> TreeLayout:
    """Return the layout of the params in a message."""
    like = layout(problem.params)
    if set(like.dtypes) != {np.dtype(np.float32)}:
        dtypes = ", ".join(sorted({str(dtype) for dtype in like.dtypes}))
        raise BadInput(f"expected params of float32, got {dtypes}; cast the params")
    return like
