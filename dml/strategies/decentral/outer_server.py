"""The server of asynchronous DiLoCo: outer steps by the arriving changes.

worker 1   H updates ─ Δ_1 ─┐     ┌─ θ ─ H updates ─ …
worker 2   H updates ──────Δ_2─┐  │ ┌─ θ ─ H updates ─ …
rank 0                      step  step            rank 0 is also a worker, and
                                                  serves between its updates

`trade` sends the change of a worker and receives θ and the next task. OuterServer, on
rank 0, and OuterClient, on other ranks, have the same methods.

Per trade: 2 messages of n values and 2 short ones: 4α + 2nβ.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dml.strategies.decentral.outer import OuterState, delayed_nesterov
from dml.types import ANY, Comm, Status, no_op
from dml.types.messages import check_nbytes
from dml.wire.comm.tags import Tag
from dml.wire.plans.tasks import ShardTask, Tasks

SERVER = 0


class Outer(NamedTuple):
    """Options of the outer steps.

    Attributes:
      every: H, largest number of updates of a task.
      lr: η.
      momentum: μ.
      momentum_every: N, number of outer steps between two steps with momentum.
      aggregation_count: Number of changes in an outer step.
      discount: Whether a change that misses s outer steps has the weight 1/√(1 + s).
      dynamic: Whether slower workers receive shorter tasks, so that all take equally
        long.
    """

    every: int
    lr: float
    momentum: float
    momentum_every: int
    aggregation_count: int = 1
    discount: bool = False
    dynamic: bool = False

    def weight(self, changes: int, workers: int) -> float:
        """Return the weight of each change of a step, before the discount.

        A step has m changes of K workers. The weight is 1/√(mK), as the sum of m
        independent changes then has the norm of the mean of all K. With delayed
        momentum, which adds the changes of N steps, the weight is 1/(mN).
        """
        if self.momentum_every == 1:
            return 1 / math.sqrt(changes * workers)
        return 1 / (changes * self.momentum_every)


def connect(
    comm: Comm,
    params: np.ndarray,
    state: OuterState,
    outer: Outer,
    observe: Callable[[np.ndarray], object] = no_op,
) -> "OuterServer | OuterClient":
    """Return the server on rank 0, and the connection to it on other ranks.

    The arguments are those of OuterServer.
    """
    if comm.rank == SERVER:
        return OuterServer(comm, params, state, outer, observe)
    return OuterClient(comm)


class OuterClient:
    """A worker's connection to the server."""

    exchanges = staleness = 0  # counted by the server

    def __init__(self, comm: Comm):
        self.comm, self.task = comm, np.empty(3, np.int64)

    def begin(self, tasks: Tasks) -> None:
        """Start the tasks of a Step."""

    def poll(self) -> None:
        """Do nothing: no messages arrive between the trades of a worker."""

    def trade(
        self, change: np.ndarray, seconds: float, params: np.ndarray
    ) -> ShardTask:
        """Send the change of a task; return the next one.

        Args:
          change: Parameters before the task minus those after it.
          seconds: Seconds per update of the task.
          params: Receives θ.
        """
        self.comm.Send(np.array([seconds]), SERVER, Tag.OUTER)
        self.comm.Send(change, SERVER, Tag.OUTER)
        self.comm.Recv(self.task, SERVER, Tag.OUTER)
        self.comm.Recv(params, SERVER, Tag.OUTER)
        return ShardTask(*self.task.tolist())


class OuterServer:
    """The outer parameters, and the tasks of all workers.

    Args:
      comm: Ranks.
      params: θ, changed in place.
      state: State of the outer optimizer, changed in place.
      outer: Options.
      observe: Called with θ after every outer step.

    Attributes:
      exchanges: Number of changes since `begin`.
      staleness: Sum over these changes of the number of outer steps from the read of θ
        to the arrival.
    """

    def __init__(
        self,
        comm: Comm,
        params: np.ndarray,
        state: OuterState,
        outer: Outer,
        observe: Callable[[np.ndarray], object],
    ):
        self.comm, self.params, self.state = comm, params, state
        self.outer, self.observe = outer, observe
        self.status, self.seconds = Status(), np.empty(1)
        self.speeds: dict[int, float] = {}  # seconds per update by worker
        self.sends: dict[int, list[Any]] = {}  # last messages to each worker

    def begin(self, tasks: Tasks) -> None:
        """Start the tasks of a Step, of which each worker has the first one."""
        self.tasks, self.working = tasks, set(range(self.comm.size))
        self.collected: dict[int, np.ndarray] = {}  # changes of the next step by worker
        self.read = dict.fromkeys(self.working, int(self.state.steps[0]))
        self.own_task: ShardTask | None = None
        self.exchanges = self.staleness = 0

    def poll(self) -> None:
        """Serve the messages that have arrived."""
        while self.comm.size > 1 and self.comm.Iprobe(ANY, Tag.OUTER, self.status):
            self.receive()

    def trade(
        self, change: np.ndarray, seconds: float, params: np.ndarray
    ) -> ShardTask:
        """Add the change of a task of this rank; return the next one.

        While the change waits for other changes of its step, or all tasks are assigned,
        this rank serves other workers.
        """
        self.own_task = None
        self.add(SERVER, change, seconds)
        while self.own_task is None:
            self.comm.Probe(ANY, Tag.OUTER, self.status)
            self.receive()
        params[:] = self.params
        return self.own_task

    def receive(self) -> None:
        """Receive the probed change and add it."""
        worker, change = self.status.Get_source(), np.empty_like(self.params)
        for message in (self.seconds, change):
            self.comm.Recv(message, worker, Tag.OUTER, self.status)
            check_nbytes(self.status, self.comm.rank, message.nbytes)
        self.add(worker, change, float(self.seconds[0]))

    def add(self, worker: int, change: np.ndarray, seconds: float) -> None:
        """Add a change; apply the outer step if all of its changes have arrived."""
        self.collected[worker], self.speeds[worker] = change, seconds
        wanted = min(self.outer.aggregation_count, len(self.working))
        if len(self.collected) < wanted:
            return
        self.step()
        workers, self.collected = sorted(self.collected), {}
        for each in workers:
            self.release(each)
        if not self.working:
            self.finish()

    def step(self) -> None:
        """Apply an outer step by the collected changes, in the order of workers."""
        outer, total = self.outer, np.zeros_like(self.params)
        weight = outer.weight(len(self.collected), self.comm.size)
        for worker, change in sorted(self.collected.items()):
            stale = int(self.state.steps[0]) - self.read[worker]
            discount = math.sqrt(1 + stale) if outer.discount else 1.0
            total += change * change.dtype.type(weight / discount)
            self.exchanges, self.staleness = self.exchanges + 1, self.staleness + stale
        delayed_nesterov(
            self.params,
            self.state,
            total,
            outer.lr,
            outer.momentum,
            outer.momentum_every,
        )
        self.observe(self.params)

    def release(self, worker: int) -> None:
        """Assign the next task to a worker, or none if all are assigned."""
        count = self.outer.every
        if self.outer.dynamic:
            fastest, own = min(self.speeds.values()), self.speeds[worker]
            count = max(1, round(count * fastest / own)) if own else count
        task = self.tasks.assign(worker, count)
        if task.length:
            self.read[worker] = int(self.state.steps[0])
            self.send(worker, task)
        else:
            self.working.remove(worker)

    def finish(self) -> None:
        """Send the final θ to all workers, after the end of all tasks."""
        for worker in range(self.comm.size):
            self.send(worker, ShardTask(0, 0, 0))
        for sends in self.sends.values():
            self.comm.Waitall(sends)
        self.sends.clear()

    def send(self, worker: int, task: ShardTask) -> None:
        if worker == SERVER:
            self.own_task = task
            return
        # complete, as the worker has sent another change
        self.comm.Waitall(self.sends.get(worker, []))
        messages = np.array(task, np.int64), self.params.copy()
        self.sends[worker] = [
            self.comm.Isend(message, worker, Tag.OUTER) for message in messages
        ]
