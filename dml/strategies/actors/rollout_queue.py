"""A learner's queue of rollouts: requested, granted, arrived, consumed.

    request ─► actor waits ─► actor plays ─► rollout arrives ─► update
                     └ admission ┘                  └ admission ┘

An actor that waits does not play: the queue is bounded by back-pressure.
"""

from collections import deque

import numpy as np

from dml.types import Play
from dml.wire.plans.admission import Admission


class Queue:
    """The rollouts of a learner's actors.

    Args:
      play: Acting part of the problem.
      admission: Bounds the outstanding rollouts and their lag.

    Attributes:
      waiting: Actors that wait for a grant, in order.
      playing: Number of the granted rollout of each actor that plays.
    """

    def __init__(self, play: Play, admission: Admission) -> None:
        self.dtype, self.admission = play.dtype, admission
        self.waiting: deque[int] = deque()
        self.playing: dict[int, int] = {}
        # actors and the bytes of their rollouts, by number
        self.arrived: dict[int, tuple[int, np.ndarray]] = {}

    def __len__(self) -> int:
        """Return the number of rollouts that have arrived."""
        return len(self.arrived)

    def request(self, actor: int) -> None:
        """Append an actor to the waiting actors."""
        self.waiting.append(actor)

    def grants(self) -> list[int]:
        """Return the actors that receive a grant now."""
        granted = []
        while self.waiting and (number := self.admission.grant()) is not None:
            granted.append(self.waiting.popleft())
            self.playing[granted[-1]] = number
        return granted

    def arrive(self, actor: int, rollout: np.ndarray) -> None:
        """Add the rollout of an actor that plays.

        Args:
          actor: Rank of the actor.
          rollout: Bytes of a record, which must not change later.
        """
        number = self.playing.pop(actor)
        self.arrived[number] = actor, rollout
        self.admission.arrive(number)

    def take(self) -> np.ndarray | None:
        """Return the rollouts of the next update; None: further rollouts must arrive.

        The rollouts are sorted by actor, not by arrival.
        """
        numbers = self.admission.take()
        if numbers is None:
            return None
        arrived = [self.arrived.pop(number) for number in numbers]
        # order matters: a stable sort keeps the order of an actor's rollouts
        arrived.sort(key=lambda pair: pair[0])
        return np.concatenate([rollout for _, rollout in arrived]).view(self.dtype)

    def forget(self, actor: int) -> None:
        """Remove an actor that has died; its rollouts that have arrived remain."""
        if actor in self.playing:
            self.admission.drop(self.playing.pop(actor))
        elif actor in self.waiting:
            self.waiting.remove(actor)
