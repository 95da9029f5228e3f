"""The workers and the spares of an elastic run, and their recovery after a death.

    world (workers and spares)   0  1  2  3 │ 4        rank 4 waits for a revocation
    workers' communicator        0  1  2  3

    death of 2    workers    a wait raises RankFailed ─► Revoke ─► Agree: not committed
                  all ranks  Revoke world ─► Shrink ─► roles ─► Split ─► state ─► Agree

Each operation of all workers, such as a step of training, ends by a vote: it counts
only if all living workers have completed it. All workers therefore always have the same
number of committed steps, and a step that failed is repeated from the state before it.
A death during the recovery makes the last vote fail, and the recovery is repeated.

Cost of a vote: one Agree, in place of the all-reduce of requests to stop or save. Cost
of a recovery: Revoke, Shrink, two Agree, one all-reduce of 2 words per rank, two Split,
and the state, a message per array, to each rank that becomes a worker.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dml.types import BadInput, RankFailed, no_op
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.plans.membership import SPARE, choose_workers, sources

DONE, STAY, GO_ON = 1, 2, 4  # bits of a vote: completed; no change; not stopped
POLL_SECONDS = 0.002  # between two polls of a spare
Value = TypeVar("Value")


class NotCommitted(RankFailed):
    """A vote has failed: a worker has not completed the operation."""


class Recovery(NamedTuple):
    """A change of the workers.

    Attributes:
      time: Time at which this rank noticed the reason, in s, by the communicator.
      seconds: Duration until all ranks have their new roles and states.
      workers: Number of workers after it.
      deaths: Number of ranks that have died since the last change.
    """

    time: float
    seconds: float
    workers: int
    deaths: int


class Members:
    """This rank's role in an elastic run.

    Args:
      world: Workers and spares. Later only this object uses it.
      workers: Number of workers, which are ranks 0 to workers - 1 at the start.

    Attributes:
      comm: Communicator of the workers; None on a spare.
      own: Communicator of this rank alone.
      stopped: Whether a worker has voted to stop.
      changing: Whether worker 0 has voted to change the number of workers.
      target: Requested number of workers.
      recoveries: All changes so far.
    """

    def __init__(self, world: Any, workers: int):
        world = as_comm(world)
        if not 1 <= workers <= world.size:
            raise BadInput(
                f"expected 1 to {world.size} workers of {world.size} ranks, got "
                f"{workers}; pass fewer spares, or start more ranks"
            )
        self.world, self.target = world, workers
        self.recoveries: list[Recovery] = []
        self.stopped = self.changing = self.ended = False
        self.position = world.rank if world.rank < workers else SPARE
        self.comm: Any = None
        self.own: Any = None
        try:
            self.comm = self.divide(world, no_op)
            complete = 1
        except RankFailed:
            world.Revoke()
            complete = 0
        if not world.Agree(complete):
            self.recover(no_op)

    @property
    def deaths(self) -> int:
        """Number of ranks that have died."""
        return sum(recovery.deaths for recovery in self.recoveries)

    def commit(self, stop: bool = False, target: int = 0) -> None:
        """End an operation of all workers; collective.

        Args:
          stop: Whether this rank requests the end of the run after the operation.
          target: Requested number of workers; 0: no change. That of worker 0 counts,
            because workers may read a request at different updates.

        Raises:
          NotCommitted: A worker has not completed the operation.
        """
        comm = self.workers_comm()
        if comm.rank == 0:
            self.target = target or self.target
        has_spares = self.world.size > comm.size
        changes = self.target < comm.size or (self.target > comm.size and has_spares)
        agreed = comm.Agree(DONE | (not changes) * STAY | (not stop) * GO_ON)
        if not agreed & DONE:
            raise NotCommitted(f"rank {comm.rank}: the operation is repeated")
        self.changing, self.stopped = not agreed & STAY, not agreed & GO_ON

    def fail(self) -> None:
        """Vote that an operation has failed, after RankFailed; collective."""
        comm = self.workers_comm()
        comm.Revoke()
        comm.Agree(0)

    def finish(self, call: Callable[[Any], Value], share: "Share") -> Value | None:
        """Return call(comm) once all workers have completed it; None on a spare.

        Args:
          call: An operation of all workers.
          share: As in `reform`.
        """
        while self.comm is not None:
            try:
                value = call(self.comm)
                self.commit()
                return value
            except NotCommitted:
                pass
            except RankFailed:
                self.fail()
            self.reform(share)
        return None

    def wait(self) -> None:
        """Wait on a spare until workers and spares are divided anew."""
        request = self.world.Irecv(np.empty(0, np.uint8), self.world.rank, Tag.FIRST)
        try:
            if self.world.platform.virtual:
                request.Wait()
            while not request.Test():
                self.world.platform.compute(POLL_SECONDS)
        except RankFailed:
            pass

    def end(self) -> None:
        """End the run, also on the spares; called by all workers."""
        self.world.Revoke()
        self.world.Agree(1)
        self.ended = True

    def reform(self, share: "Share") -> bool:
        """Divide the living ranks into workers and spares; collective.

        Args:
          share: Sends the state; called with the new communicator and the sources.

        Returns:
          False if the run has ended.
        """
        begun = self.world.Wtime()
        size = self.world.size
        self.world.Revoke()
        if self.world.Agree(int(self.comm is None)):
            self.ended = True
            return False
        self.recover(share)
        seconds, deaths = self.world.Wtime() - begun, size - self.world.size
        workers = min(self.target, self.world.size)
        self.recoveries.append(Recovery(begun, seconds, workers, deaths))
        return True

    def recover(self, share: "Share") -> None:
        """Divide the living ranks anew; repeated if a rank dies meanwhile."""
        complete = 0
        while not complete:
            world, comm = self.world.Shrink(), None
            try:
                comm = self.divide(world, share)
                complete = 1
            except RankFailed:
                world.Revoke()
            self.world = world
            complete = world.Agree(complete)
        self.comm, self.changing = comm, False
        self.position = SPARE if comm is None else comm.rank

    def divide(self, world: Any, share: "Share") -> Any:
        """Return the communicator of the new workers; None on a spare."""
        table = np.zeros((world.size, 2), np.int64)
        table[world.rank] = self.position, self.target
        world.Allreduce(None, table, np.add)
        positions = table[:, 0].tolist()
        before = [rank for rank in range(world.size) if positions[rank] != SPARE]
        if before:  # the target of the first worker
            self.target = int(table[min(before, key=positions.__getitem__), 1])
        chosen = choose_workers(positions, self.target)
        works = world.rank in chosen
        key = chosen.index(world.rank) if works else world.rank
        self.own = world.Split(world.rank)
        comm = world.Split(0 if works else 1, key)
        if not works:
            return None
        share(comm, sources([positions[rank] != SPARE for rank in chosen]))
        return comm

    def workers_comm(self) -> Any:
        assert self.comm is not None, "a spare takes part in no operation of workers"
        return self.comm


# (comm of the workers, source of the state of each worker without it) -> None
Share = Callable[[Any, "dict[int, int]"], None]


def exchange_state(
    comm: Any,
    sources: dict[int, int],
    state: Callable[[], Sequence[np.ndarray]],
    buffers: Callable[[], Sequence[np.ndarray]],
) -> list[np.ndarray] | None:
    """Send the state to the workers without it; return it there, None elsewhere.

    Cost: one message per array, to each receiver.

    Args:
      comm: Workers.
      sources: Source of each receiver.
      state: () -> arrays of the state; called on sources only.
      buffers: () -> contiguous arrays of the same shapes and dtypes; called on
        receivers only.
    """
    if comm.rank in sources:
        received = list(buffers())
        for array in received:
            comm.Recv(bytes_of(array), sources[comm.rank], Tag.STATE)
        return received
    for dest, source in sources.items():
        if source == comm.rank:
            for array in state():
                comm.Send(bytes_of(np.ascontiguousarray(array)), dest, Tag.STATE)
    return None


def bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)
