"""Four rules by which workers wait for each other between steps, by empty messages.

Ranks 0 … p-1 are workers; the last rank, p, counts their clocks, as a parameter server
does (Ho 2013). A worker's clock is the number of steps that it has completed.
`work(unless)` computes one step, stops early if the request `unless` completes, and
returns whether the step was completed. Each function returns the times at which this
worker's steps began, and an empty array on the server.
"""

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from dml.types import ANY, Comm, Request, Status
from dml.types.messages import check_nbytes
from dml.wire.collectives.tree import tree_allreduce
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag

Work = Callable[[Request | None], bool]
NOTHING = np.empty(0, np.uint8)


def synchronous(comm: Comm, work: Work, steps: int) -> np.ndarray:
    """Wait for all workers after every step.

        worker 0  ███████░░░│████████░│        ░ waits
        worker 1  ██████████│█████████│        │ barrier

    An all-reduce of an empty buffer among the workers, without the server: 2⌈lg p⌉
    rounds and 2(p-1) empty messages per step.
    """
    comm = as_comm(comm)
    is_server = comm.rank == comm.size - 1
    workers = comm.Split(int(is_server), comm.rank)
    starts_T = np.zeros(0 if is_server else steps)
    for step in range(len(starts_T)):
        starts_T[step] = comm.Wtime()
        work(None)
        tree_allreduce(workers, NOTHING)
    workers.Free()
    return starts_T


def k_of_p(comm: Comm, work: Work, steps: int, k: int) -> np.ndarray:
    """End a step when k workers have completed it; the others stop it (Chen 2016).

        worker 0  ██████ │██████│        k = 2 of p = 3
        worker 1  ███████│████× │        × stopped by the server's message
        worker 2  █████× │██████│

    2 rounds per step: each worker that completes the step sends its number to the
    server, which sends p empty messages back.
    """
    comm, server = as_comm(comm), comm.size - 1
    number = np.zeros(1, np.int64)  # of the step
    if comm.rank == server:
        for step in range(steps):
            receive_numbers(comm, number, step, k)
            for worker in range(server):
                comm.Send(NOTHING, worker, Tag.LEAVE)
        receive_numbers(comm, number, steps, server)  # the last message of each worker
        return np.zeros(0)
    starts_T = np.zeros(steps)
    for step in range(steps):
        starts_T[step] = comm.Wtime()
        number[0] = step
        leave = comm.Irecv(NOTHING, server, Tag.LEAVE)
        if work(leave):
            comm.Send(number, server, Tag.CLOCK)
        leave.Wait()
    number[0] = steps
    comm.Send(number, server, Tag.CLOCK)
    return starts_T


def receive_numbers(comm: Comm, number: np.ndarray, step: int, count: int) -> None:
    """Receive messages until `count` have the number of this step.

    Other messages are late: their worker completed an earlier step while the LEAVE
    message of that step was in transit.
    """
    status = Status()
    while count:
        comm.Recv(number, ANY, Tag.CLOCK, status)
        check_nbytes(status, comm.rank, number.nbytes)
        count -= int(number[0] == step)


def ssp(comm: Comm, work: Work, steps: int, staleness: float = 0) -> np.ndarray:
    """Start clock c when the slowest worker's clock is at least c - s (Ho 2013).

        worker 0  ██████████│████│██████░░░│███        s = 1: at most one clock ahead
        worker 1  ███████████████████████│██████

    2 rounds per step: p empty messages to the server, which answers each when s allows
    the worker to continue.

    staleness: largest number of clocks s by which a worker is ahead of the slowest.
    """
    comm, server = as_comm(comm), comm.size - 1
    if comm.rank == server:
        return serve_ssp(comm, steps, staleness)
    starts_T = np.zeros(steps)
    for step in range(steps):
        starts_T[step] = comm.Wtime()
        work(None)
        comm.Send(NOTHING, server, Tag.CLOCK)
        comm.Recv(NOTHING, server, Tag.LEAVE)
    return starts_T


def serve_ssp(comm: Comm, steps: int, staleness: float) -> np.ndarray:
    """Receive the end of every clock, and answer when the staleness allows it."""
    workers, status = comm.size - 1, Status()
    slowest = 0  # clock of the slowest worker
    clocks = [0] * workers
    workers_at = [workers] + [0] * steps  # number of workers at each clock
    waiting: defaultdict[float, list[int]] = defaultdict(list)  # workers by clock
    for _ in range(workers * steps):
        comm.Recv(NOTHING, ANY, Tag.CLOCK, status)
        worker = status.Get_source()
        workers_at[clocks[worker]] -= 1
        clocks[worker] += 1
        workers_at[clocks[worker]] += 1
        waiting[clocks[worker]].append(worker)
        allowed: list[float] = []  # clocks at which workers may continue
        if clocks[worker] <= slowest + staleness:
            allowed.append(clocks[worker])
        while slowest < steps and not workers_at[slowest]:
            slowest += 1
            allowed.append(slowest + staleness)
        for clock in allowed:
            for waiting_worker in waiting.pop(clock, ()):
                comm.Send(NOTHING, waiting_worker, Tag.LEAVE)
    return np.zeros(0)


def asynchronous(comm: Comm, work: Work, steps: int) -> np.ndarray:
    """Notify the server of every step, and continue without an answer.

        worker 0  ██████│████████│█████│███
        worker 1  █████████│████│████████│█

    p empty messages per step, for which no worker waits.
    """
    comm, server = as_comm(comm), comm.size - 1
    if comm.rank == server:
        for _ in range(server * steps):
            comm.Recv(NOTHING, ANY, Tag.CLOCK)
        return np.zeros(0)
    starts_T = np.zeros(steps)
    for step in range(steps):
        starts_T[step] = comm.Wtime()
        work(None)
        comm.Send(NOTHING, server, Tag.CLOCK)
    return starts_T
