"""Synchronisation of workers between steps in four ways, by messages without data.

Ranks 0 … p-1 are workers; the last rank counts the clocks, as a parameter server does
(Ho 2013). `work(unless)` computes one step until that request completes, and returns
whether the step was completed. A worker returns the times at which its steps began.
"""

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from dml.types import ANY, Comm, Request, Status
from dml.wire.collectives.tree import tree_allreduce
from dml.wire.comm.tags import Tag

Work = Callable[[Request | None], bool]
NOTHING = np.empty(0, np.uint8)


def synchronous(comm: Comm, work: Work, steps: int) -> np.ndarray:
    """Wait for all workers after every step.

        worker 0  ███████░░░│████████░│        ░ waits
        worker 1  ██████████│█████████│        │ barrier

    An all-reduce of nothing, in which the server takes no part: 2⌈lg p⌉ rounds a step,
    2(p-1) empty messages.
    """
    serves = comm.rank == comm.size - 1
    workers = comm.Split(int(serves), comm.rank)
    starts_T = np.zeros(0 if serves else steps)
    for k in range(len(starts_T)):
        starts_T[k] = comm.Wtime()
        work(None)
        tree_allreduce(workers, NOTHING)
    workers.Free()
    return starts_T


def k_of_p(comm: Comm, work: Work, steps: int, k: int) -> np.ndarray:
    """Continue when k workers have finished a step; the others drop theirs (Chen 2016).

        worker 0  ██████ │██████│        k = 2 of 3
        worker 1  ███████│████× │        × ended by the server
        worker 2  █████× │██████│

    2 rounds per step: at most p numbers of steps to the server, p empty messages back.
    """
    server, word = comm.size - 1, np.zeros(1, np.int64)
    if comm.rank == server:
        for step in range(steps + 1):
            # at the end every worker sends its number of steps
            wanted = k if step < steps else server
            while wanted:
                comm.Recv(word, ANY, Tag.CLOCK)
                wanted -= int(word[0] == step)  # others are late: LEAVE was in transit
            for worker in range(server if step < steps else 0):
                comm.Send(NOTHING, worker, Tag.LEAVE)
        return np.zeros(0)
    starts_T = np.zeros(steps)
    for step in range(steps):
        starts_T[step], word[0] = comm.Wtime(), step
        leave = comm.Irecv(NOTHING, server, Tag.LEAVE)
        if work(leave):
            comm.Send(word, server, Tag.CLOCK)
        leave.Wait()
    word[0] = steps
    comm.Send(word, server, Tag.CLOCK)
    return starts_T


def ssp(comm: Comm, work: Work, steps: int, staleness: float = 0) -> np.ndarray:
    """Start clock c when the slowest worker's clock is at least c - s (Ho 2013).

        worker 0  ██████████│████│██████░░░│███        s = 1: at most one ahead
        worker 1  ███████████████████████│██████

    2 rounds per step: p empty messages to the server, which answers each when the bound
    allows it.
    """
    server = comm.size - 1
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
    """Receive every clock, and answer as soon as the bound allows it."""
    workers, slowest, status = comm.size - 1, 0, Status()
    clocks = [0] * workers
    at = [workers] + [0] * steps  # how many workers are at each clock
    waiting: defaultdict[float, list[int]] = defaultdict(list)  # by clock
    for _ in range(workers * steps):
        comm.Recv(NOTHING, ANY, Tag.CLOCK, status)
        worker = status.Get_source()
        at[clocks[worker]] -= 1
        clocks[worker] += 1
        at[clocks[worker]] += 1
        waiting[clocks[worker]].append(worker)
        allowed: list[float] = []
        if clocks[worker] <= slowest + staleness:
            allowed.append(clocks[worker])
        while slowest < steps and not at[slowest]:
            slowest += 1
            allowed.append(slowest + staleness)
        for clock in allowed:
            for one in waiting.pop(clock, ()):
                comm.Send(NOTHING, one, Tag.LEAVE)
    return np.zeros(0)


def asynchronous(comm: Comm, work: Work, steps: int) -> np.ndarray:
    """Send every step to the server, without a wait.

        worker 0  ██████│████████│█████│███
        worker 1  █████████│████│████████│█

    p empty messages per step, and no rounds.
    """
    server = comm.size - 1
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
