"""Messages of collective calls, on a communicator that programs cannot reach.

A collective algorithm is written once, for arrays and for objects: `send` and `receive`
of a Channel transfer vectors, those of an ObjectChannel pickled objects.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from dml.sim.mpi.constants import error
from dml.sim.mpi.pickles import pickle
from dml.sim.mpi.ranks import Rank
from dml.sim.mpi.requests import rank_failed
from dml.sim.transfer import Accepting
from dml.types import BadInput, RankFailed

CALLS = (
    *("Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather"),
    *("Allgatherv", "Alltoall", "Alltoallv", "Alltoallw", "Reduce", "Allreduce"),
    *("Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan"),
    *("Neighbor_allgather", "Neighbor_allgatherv", "Neighbor_alltoall"),
    *("Neighbor_alltoallv", "Neighbor_alltoallw", "Create", "Dup", "Win"),
)
Call = IntEnum("Call", CALLS)  # type: ignore[misc]  # tags: deadlocks name the call


class Channel:
    """Vectors sent and received in one collective call of one rank.

    Attributes:
      comm: Virtual communicator of the call.
      tag: Names the call.
      owner: Counts the messages.
      trace: That of the run, or None.
    """

    __slots__ = (
        *("comm", "gamma", "owner", "process", "rank", "size", "table", "tag", "trace"),
    )

    def __init__(self, comm: Any, tag: Call, owner: Rank, table: Any):
        self.comm, self.tag, self.owner, self.table = comm, tag, owner, table
        self.rank, self.size = comm.rank, comm.size
        self.process, self.gamma = comm.process, comm.gamma
        self.trace = owner.options.trace

    def count(self, data: np.ndarray, dest: int) -> None:
        owner = self.owner
        owner.messages += 1
        owner.nbytes += data.nbytes
        if self.trace is not None:
            self.trace.sent(self.comm, dest, self.tag, data.nbytes)

    def received(self, source: int) -> None:
        if self.trace is not None:
            self.trace.received(self.comm, source, self.tag)

    def send(self, data: np.ndarray, dest: int) -> None:
        self.count(data, dest)
        self.comm.Send(data, dest, self.tag)

    def receive(self, source: int, like: np.ndarray) -> np.ndarray:
        """Return a received vector of the length and the dtype of `like`."""
        into = np.empty(like.shape, like.dtype)
        try:
            self.comm.Recv(into, source, self.tag)
        except BadInput as reason:
            raise self.refused(reason) from reason
        self.received(source)
        return into

    def exchange(self, data: Any, dest: int, source: int, like: Any) -> Any:
        """Send one vector and return a received one, at the same time."""
        into, tag = np.empty(len(like), like.dtype), self.tag
        self.count(data, dest)
        try:
            self.comm.Sendrecv(data, dest, tag, into, source, tag)
        except BadInput as reason:
            raise self.refused(reason) from reason
        self.received(source)
        return into

    def post(self, data: np.ndarray, dest: int, tag: int = 0) -> Any:
        """Start to send; return a request with `Wait`."""
        self.count(data, dest)
        return self.comm.Isend(data, dest, tag or self.tag)

    def refused(self, reason: BadInput) -> Exception:
        return error("ERR_TRUNCATE", f"{self.tag.name}: {reason}")

    def join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return several vectors of one length as one message."""
        return np.concatenate(parts) if len(parts) != 1 else parts[0]

    def split(self, message: np.ndarray, count: int) -> list[np.ndarray]:
        return [*message.reshape(count, -1)] if count else []

    def several(self, like: np.ndarray, count: int) -> np.ndarray:
        """Return an example of `count` joined vectors."""
        return np.broadcast_to(like[:1], (count * len(like),)) if len(like) else like

    def nbytes(self, value: np.ndarray) -> int:
        return value.nbytes

    def combine(self, op: Any, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return left op right, in the memory of `right`."""
        op(left, right, out=right)
        self.process.clock += self.gamma * right.nbytes
        return right

    def private(self, value: np.ndarray) -> np.ndarray:
        return value.copy()


class ObjectChannel(Channel):
    """Objects sent and received in one collective call, as pickles."""

    __slots__ = ()

    def send(self, data: Any, dest: int) -> None:
        super().send(as_bytes(data), dest)

    def receive(self, source: int, like: Any) -> Any:
        found: list[np.ndarray] = []
        into = Accepting(lambda data, _: found.append(data.copy()))
        self.comm.Irecv(into, source, self.tag).Wait()
        self.received(source)
        return pickle.loads(found[0])

    def exchange(self, data: Any, dest: int, source: int, like: Any) -> Any:
        found: list[np.ndarray] = []
        into = Accepting(lambda data, _: found.append(data.copy()))
        request = self.comm.Irecv(into, source, self.tag)
        self.post(as_bytes(data), dest).Wait()
        request.Wait()
        self.received(source)
        return pickle.loads(found[0])

    def join(self, parts: Sequence[Any]) -> Any:
        return list(parts)

    def split(self, message: Any, count: int) -> list[Any]:
        return message

    def several(self, like: Any, count: int) -> Any:
        return like

    def nbytes(self, value: Any) -> int:
        return 0

    def combine(self, op: Any, left: Any, right: Any) -> Any:
        return op(left, right)

    def private(self, value: Any) -> Any:
        return value


def as_bytes(value: Any) -> np.ndarray:
    return np.frombuffer(pickle.dumps(value), np.uint8)


def run_body(channel: Channel, body: Any) -> Any:
    """Return body(channel); raise an error of MPI if a rank has failed."""
    try:
        return body(channel)
    except RankFailed as failure:
        raise rank_failed(channel.tag.name, failure) from failure
