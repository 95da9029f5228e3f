"""All-reduce in the background, on the same code as the blocking all-reduces.

The all-reduce runs in a fiber (a greenlet). Where it would wait, the fiber returns to
the caller of `poll`.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from greenlet import getcurrent, greenlet

from dml.types import AllReduce, BadInput, Comm, Op
from dml.wire.collectives.auto import (
    auto_allreduce,
    candidates_of,
    chosen_allreduce,
)
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.polling import Call, Polling

POLLS = 100  # polls during the computation of `overlapped_share`


def allreduce_async(
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    allreduce: Callable[..., None] = auto_allreduce,
    *,
    thread: bool = False,
) -> "Fiber | Thread":
    """Start an all-reduce and return its handle.

        handle = allreduce_async(comm, bucket)
        while computing: ...; handle.poll()
        handle.wait()

    All ranks start all-reduces in the same order, because the first call on a
    communicator is collective; they may poll in any order. A communicator has one
    all-reduce in progress at a time: use `Dup` for more.

    Args:
      comm: The ranks.
      buffer: Buffer to reduce in place. Do not read or write it before the end.
      op: The reduction.
      allreduce: The all-reduce, by default `auto`.
      thread: Whether to run in a thread instead of in `poll`; real ranks only.

    Returns:
      A handle: `poll()` makes progress and returns whether the all-reduce is done;
      `wait()` returns at its end.
    """
    comm = as_comm(comm)
    if among := candidates_of(allreduce):
        name = chosen_allreduce(comm, flat(comm, buffer), among)
        allreduce = among.functions[name]
    if not thread:
        return Fiber(comm, lambda yielding: allreduce(yielding, buffer, op))
    if comm.platform.virtual:
        raise BadInput(
            "expected thread=False on virtual ranks, which share one thread; call "
            "poll() or wait() instead"
        )
    return Thread(lambda: allreduce(comm, buffer, op))


def overlapped_share(
    comm: Comm, buffer: np.ndarray, allreduce: AllReduce, seconds: float, share: float
) -> float:
    """Measure the share of an all-reduce that overlaps with computation.

    The computation consists of POLLS sleeps, or intervals of virtual time, with a poll
    after each. The share is 1 if all-reduce and computation together take the time of
    the longer one, and 0 if they take the sum of their times. Collective.

    Args:
      comm: The ranks.
      buffer: Buffer to reduce.
      allreduce: The all-reduce.
      seconds: Time of the all-reduce without computation.
      share: Time of the computation, in multiples of `seconds`.
    """
    comm, computing = as_comm(comm), share * seconds
    warm_up = allreduce_async(comm, buffer, allreduce=allreduce)
    warm_up.wait()  # the first call sets up communicators and windows
    comm.Barrier()
    start = comm.Wtime()
    handle = allreduce_async(comm, buffer, allreduce=allreduce)
    for _ in range(POLLS):
        comm.platform.compute(computing / POLLS)
        handle.poll()
    handle.wait()
    took = np.array([comm.Wtime() - start])
    comm.Allreduce(None, took, np.maximum)
    shorter = min(computing, seconds)
    return (computing + seconds - float(took[0])) / shorter if shorter else 0.0


class Fiber:
    """A collective that returns where it would wait, and resumes at the next poll.

    It must be polled in the thread in which it started.
    """

    def __init__(self, comm: Comm, program: Callable[[Any], None]):
        if comm.cache.yielding is None:
            comm.cache.yielding = YieldingComm(comm)
        self.comm: YieldingComm = comm.cache.yielding
        self.polled = True  # False once `wait` is called
        self.caller: Any = None
        self.fiber = greenlet(lambda: program(self.comm))
        self.poll()

    def poll(self) -> bool:
        """Continue until the next wait; return whether the collective is done."""
        if not self.fiber.dead:
            self.comm.running = self
            self.caller = self.fiber.parent = getcurrent()
            self.fiber.switch()
        return self.fiber.dead

    def wait(self) -> None:
        """Continue to the end."""
        self.polled = False
        self.poll()


class Thread:
    """A collective that runs in a separate thread."""

    def __init__(self, program: Callable[[], None]):
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self.run, args=(program,))
        self.thread.start()

    def run(self, program: Callable[[], None]) -> None:
        try:
            program()
        except BaseException as error:
            self.error = error

    def poll(self) -> bool:
        """Return whether the collective is done."""
        return not self.thread.is_alive()

    def wait(self) -> None:
        """Wait for the end; raise the error of the collective, if any."""
        self.thread.join()
        if self.error:
            raise self.error


class YieldingComm(Polling):
    """A communicator whose blocking calls return to the caller of `Fiber.poll`."""

    running: Fiber  # fiber that is being polled; set on `top` only

    def __init__(self, comm: Comm, top: "YieldingComm | None" = None):
        super().__init__(comm)
        self.top = top or self  # communicator from which this one was split
        self.platform = comm.platform._replace(pause=self.pause)
        self.cache.parent = comm, range(comm.size)

    def wrap(self, comm: Comm) -> "YieldingComm":
        return YieldingComm(comm, self.top)

    def pause(self) -> None:
        """Return to the caller of `poll`, or let other ranks run during `wait`."""
        running = self.top.running
        if running.polled:
            running.caller.switch()
        else:
            self.comm.platform.pause()

    def wait(self, done: Callable[[], bool], call: Call) -> None:
        """Return to the caller until done() is true or `Fiber.wait` is called."""
        running = self.top.running
        while running.polled and not done():
            running.caller.switch()
