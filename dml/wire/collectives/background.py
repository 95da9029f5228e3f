"""All-reduce in the background: the same code, stopped wherever it would wait."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from greenlet import getcurrent, greenlet

from dml.types import AllReduce, BadInput, Comm, Op
from dml.wire.collectives.auto import CANDIDATES, auto_allreduce, chosen
from dml.wire.comm.buffers import flat
from dml.wire.comm.polling import Call, Polling

PARTS = 100  # of the computation beside an all-reduce


def allreduce_async(
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    allreduce: Callable[..., None] = auto_allreduce,
    *,
    thread: bool = False,
) -> "Fiber | Thread":
    """Begin an all-reduce; `poll` its handle while you compute, or let a thread do it.

        handle = allreduce_async(comm, bucket)
        while computing: ...; handle.poll()
        handle.wait()

    Ranks begin in the same order, for what is set up once they set up together; then
    they may poll in any. One at a time on a communicator: `Dup` it for more.
    """
    if allreduce is auto_allreduce:
        allreduce = CANDIDATES[chosen(comm, flat(comm, buffer))]
    if not thread:
        return Fiber(comm, lambda patient: allreduce(patient, buffer, op))
    if comm.platform.virtual:
        raise BadInput("virtual ranks live in one thread; poll() or wait() instead")
    return Thread(lambda: allreduce(comm, buffer, op))


def hidden(
    comm: Comm, buffer: np.ndarray, allreduce: AllReduce, seconds: float, share: float
) -> float:
    """Return the share of an all-reduce that computation beside it hides.

    The computation is PARTS sleeps, or intervals of virtual time, with a poll after
    each. 1: it costs no more than the longer of both; 0: as much as one after another.

    Args:
      comm: The ranks; collective.
      buffer: What is reduced.
      allreduce: The all-reduce.
      seconds: Time of the all-reduce alone.
      share: Time of the computation, in multiples of `seconds`.
    """
    computing = share * seconds
    allreduce_async(comm, buffer, allreduce=allreduce).wait()  # sets up
    comm.Barrier()
    start = comm.Wtime()
    handle = allreduce_async(comm, buffer, allreduce=allreduce)
    for _ in range(PARTS):
        comm.platform.compute(computing / PARTS)
        handle.poll()
    handle.wait()
    took = np.array([comm.Wtime() - start])
    comm.Allreduce(None, took, np.maximum)
    shorter = min(computing, seconds)
    return (computing + seconds - float(took[0])) / shorter if shorter else 0.0


class Fiber:
    """A collective that returns wherever it would wait, and resumes at the next poll.

    It stays in the thread in which it began.
    """

    def __init__(self, comm: Comm, program: Callable[[Any], None]):
        if comm.cache.patient is None:
            comm.cache.patient = Patient(comm)
        self.comm: Patient = comm.cache.patient
        self.polled = True  # until `wait`
        self.caller: Any = None
        self.fiber = greenlet(lambda: program(self.comm))
        self.poll()

    def poll(self) -> bool:
        """Continue as far as possible without waiting; return whether it is done."""
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
    """A collective in a thread of its own."""

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
        """Say whether it is done."""
        return not self.thread.is_alive()

    def wait(self) -> None:
        """Wait for its end; raise what it raised."""
        self.thread.join()
        if self.error:
            raise self.error


class Patient(Polling):
    """A communicator whose blocking calls return to the caller of `poll` meanwhile."""

    running: Fiber  # of the top one

    def __init__(self, comm: Comm, top: "Patient | None" = None):
        super().__init__(comm)
        self.top = top or self
        self.platform = comm.platform._replace(pause=self.pause)
        self.cache.parent = comm, range(comm.size)

    def wrap(self, comm: Comm) -> "Patient":
        return Patient(comm, self.top)

    def pause(self) -> None:
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
