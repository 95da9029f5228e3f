"""Messages of Ape-X: records of fixed layout, without pickles.

    from      to        message
    actor     replay    Insert: transitions with their first priorities; or the end
    replay    actor     Credit for another Insert; or the end
    learner   replay    Request for a batch, with new priorities; or the end
    replay    learner   Batch: transitions with importance weights; or the end
    actor     learner   Report: frames and returns, a request for params; or the end
    learner   actor     Params, with their version; or the end

A learner or replay waits for a message of any rank, and its sender determines the
layout. Sends do not wait, as answers bound the number of messages in transit.
"""

from collections import deque
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from dml.types import ANY, Comm, RankFailed, Status
from dml.types.messages import check_nbytes
from dml.wire.comm.surviving import Surviving, new_deaths
from dml.wire.comm.tags import Tag

LEARNER = 0
NO_RANK = -1  # result of `Links.wait` after a death
END = -1  # count of a message that is the last one


class Layouts(NamedTuple):
    """Dtypes of the messages, each with a field `count`, END in the last message.

    Attributes:
      insert: To a replay. The first `count` transitions are valid.
      request: To a replay. The first `count` keys have new priorities.
      batch: To the learner. `size` is the number of transitions of the replay.
      params: To an actor. `count` is the version of the params.
      credit: To an actor.
      report: To the learner. `count` is the number of frames since the last report.
    """

    insert: np.dtype
    request: np.dtype
    batch: np.dtype
    params: np.dtype
    credit: np.dtype = np.dtype([("count", np.int64)])
    report: np.dtype = np.dtype(
        [("count", np.int64), ("episodes", np.int64), ("mean_return", np.float64)]
    )


def layouts(transition: np.dtype, inserted: int, batch: int, params: int) -> Layouts:
    """Return the layouts of the messages.

    Args:
      transition: Dtype of a transition.
      inserted: Largest number of transitions of an Insert.
      batch: Number B of transitions of a batch.
      params: Number of elements of the params.
    """
    count, keys = ("count", np.int64), ("keys", np.int64, (batch,))
    return Layouts(
        insert=np.dtype(
            [
                count,
                ("records", transition, (inserted,)),
                ("priorities", np.float32, (inserted,)),
            ],
            align=True,
        ),
        request=np.dtype([count, keys, ("priorities", np.float32, (batch,))]),
        batch=np.dtype(
            [
                count,
                ("size", np.int64),
                keys,
                ("records", transition, (batch,)),
                ("weights", np.float32, (batch,)),
            ],
            align=True,
        ),
        params=np.dtype([count, ("params", np.float32, (params,))]),
    )


class Links:
    """Messages of this rank.

    Args:
      comm: Ranks.
      window: Largest number of messages in transit to a rank.
      elastic: Whether actors may die.
    """

    def __init__(self, comm: Comm, window: int, elastic: bool):
        self.comm: Any = Surviving(comm) if elastic else comm
        self.window, self.elastic = window, elastic
        self.status, self.known_deaths = Status(), set[int]()
        self.sends: dict[int, deque[Any]] = {}  # requests with their buffers, by rank
        if elastic:
            comm.Ack_failed()  # later deaths end `wait`

    def wait(self, actors: set[int]) -> int:
        """Return the sender of the next message; NO_RANK after the death of an actor.

        Args:
          actors: Living actors, from which dead ones are removed.
        """
        try:
            self.comm.Probe(ANY, Tag.REPLAY, self.status)
        except RankFailed:
            if not self.elastic:
                raise
            dead = new_deaths(self.comm, self.known_deaths)
            if LEARNER in dead:
                raise
            actors.difference_update(dead)
            return NO_RANK
        return self.status.Get_source()

    def receive(self, dtype: np.dtype, source: int) -> Any:
        """Return the next message of a rank, a record of its layout."""
        message = np.empty(1, dtype)
        self.comm.Recv(message.view(np.uint8), source, Tag.REPLAY, self.status)
        check_nbytes(self.status, self.comm.rank, message.nbytes)
        return message[0]

    def send(self, dtype: np.dtype, dest: int, count: int, **fields: Any) -> None:
        """Send a message; fields that are not passed are 0.

        Args:
          dtype: Layout.
          dest: Receiver.
          count: Field `count`.
          **fields: Values of other fields; a shorter array sets the first elements.
        """
        message = np.zeros(1, dtype)
        message["count"] = count
        for name, values in fields.items():
            if np.ndim(values):
                message[name][0, : len(values)] = values
            else:
                message[name] = values
        sends = self.sends.setdefault(dest, deque())
        if len(sends) == self.window:
            sends.popleft()[0].Wait()
        buffer = message.view(np.uint8)
        sends.append((self.comm.Isend(buffer, dest, Tag.REPLAY), buffer))

    def close(self) -> None:
        """Wait until all messages are received."""
        for sends in self.sends.values():
            for request, _ in sends:
                request.Wait()
        self.sends.clear()


def remaining(actors: Collection[int]) -> None:
    """Raise RankFailed if no actor is left."""
    if not actors:
        raise RankFailed("expected a living actor, got none; start more ranks")
