"""Messages between a learner and its actors, and deaths of actors.

    take ─► serve ─► serve ─► ... until the admission has the rollouts of an update

A subclass handles the messages of one strategy; see `impala.py` and `seed.py`.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from dml.strategies.actors.arrivals import Arrivals, Message
from dml.strategies.actors.roles import Roles
from dml.strategies.actors.rollout_queue import Queue
from dml.types import BadInput, Comm, Params, Play, RankFailed
from dml.wire.comm.buffers import TreeLayout
from dml.wire.comm.surviving import new_deaths
from dml.wire.comm.tags import Tag
from dml.wire.plans.admission import Admission


class Service(ABC):
    """The messages of a learner and its actors.

    Args:
      comm: All ranks.
      roles: Roles of the ranks.
      play: Acting part of the problem.
      like: Layout of the params.
      version: Number of updates of an earlier run.
      elastic: Whether training continues when actors die.

    Attributes:
      actors: Ranks of the living actors.
      queue: Rollouts of these actors.
    """

    def __init__(
        self,
        comm: Comm,
        roles: Roles,
        play: Play,
        like: TreeLayout,
        *,
        version: int,
        elastic: bool,
    ) -> None:
        self.comm, self.roles, self.play, self.like = comm, roles, play, like
        self.elastic = elastic
        self.actors = set(roles.actors_of(comm.rank))
        share = roles.batch // roles.learners
        self.queue = Queue(play, Admission(share, roles.lag, version))
        self.arrivals = self.listen()
        self.sends: dict[int, Any] = {}  # last send to each actor
        self.dead: set[int] = set()
        if elastic:
            comm.Ack_failed()  # from now on a death ends the wait for a message
            self.drop_dead()

    @abstractmethod
    def listen(self) -> Arrivals:
        """Post the receives of the actors' messages."""

    @abstractmethod
    def publish(self, version: int, params: Params) -> None:
        """Use these params for further answers."""

    @abstractmethod
    def handle(self, message: Message) -> None:
        """Handle a message of a living actor."""

    @abstractmethod
    def end(self, actor: int) -> None:
        """Send the end of the run to an actor that waits."""

    def respond(self) -> None:  # noqa: B027
        """Answer the messages that were handled together."""

    def take(self) -> np.ndarray:
        """Return the rollouts of the next update, of this learner's actors."""
        self.serve(wait=False)  # answered actors play while the gradient is computed
        while (rollouts := self.queue.take()) is None:
            self.serve(wait=True)
        return rollouts

    def serve(self, wait: bool) -> None:
        """Handle messages that have arrived; if `wait`, wait for one or for a death."""
        while message := self.next(wait):
            self.handle(message)
            wait = False
        self.respond()

    def next(self, wait: bool) -> Message | None:
        """Return the next message of a living actor; None: none, or an actor has died.

        A death may be the last event for which an update waits: the dropped rollout
        was the only one in play.
        """
        while True:
            try:
                message = self.arrivals.next(wait)
            except RankFailed:
                if not self.elastic:
                    raise
                self.drop_dead()
                return None
            if message is None or message[0] in self.actors:
                return message

    def drop_dead(self) -> None:
        """Remove the actors that have died since the last call."""
        for rank in new_deaths(self.comm, self.dead):
            self.actors.discard(rank)
            self.queue.forget(rank)
        if not self.actors:
            raise BadInput(
                f"expected a living actor of learner {self.comm.rank}, got none; start "
                "more ranks"
            )

    def send(self, message: np.ndarray, actor: int, tag: Tag) -> None:
        """Send an answer; the previous send to the actor is complete by now."""
        if actor in self.sends:
            self.sends.pop(actor).Wait()
        self.sends[actor] = self.comm.Isend(message, actor, tag)

    def finish(self) -> None:
        """End all actors, each when it next waits; return when all have ended."""
        left = set(self.actors)
        for actor in self.queue.waiting:
            self.end(actor)
            left.discard(actor)
        while left & self.actors:
            if message := self.next(wait=True):
                self.end(message[0])
                left.discard(message[0])
        self.arrivals.close()
        for send in self.sends.values():
            send.Wait()
