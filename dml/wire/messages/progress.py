"""All-reduce in the background: the same code, stopped wherever it would wait."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from greenlet import getcurrent, greenlet

from dml.types import BadInput, Comm, Op
from dml.wire.buffers import flat
from dml.wire.messages.auto import CANDIDATES, auto_allreduce, chosen


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
    if not comm.machine:
        raise BadInput("virtual ranks live in one thread; poll() or wait() instead")
    return Thread(lambda: allreduce(comm, buffer, op))


class Fiber:
    """A collective that gives way wherever it would wait, and goes on at the next poll.

    It stays in the thread in which it began.
    """

    def __init__(self, comm: Comm, program: Callable[[Any], None]):
        self.patient = True  # until `wait`
        self.caller: Any = None
        self.fiber = greenlet(lambda: program(Patient(comm, self)))
        self.poll()

    def poll(self) -> bool:
        """Go on as far as possible without waiting; say whether it is done."""
        if not self.fiber.dead:
            self.caller = self.fiber.parent = getcurrent()
            self.fiber.switch()
        return self.fiber.dead

    def wait(self) -> None:
        """Go on to the end."""
        self.patient = False
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


class Patient:
    """A communicator whose blocking calls give way to the caller till they are done."""

    def __init__(self, comm: Comm, handle: Fiber):
        self.comm, self.handle = comm, handle

    def around(self, comm: Comm) -> "Patient":
        return Patient(comm, self.handle)

    def pause(self) -> None:
        if self.handle.patient:
            self.handle.caller.switch()
        else:
            self.comm.pause()

    def finish(self, request: Any) -> None:
        while self.handle.patient and not request.Test():
            self.handle.caller.switch()
        request.Wait()

    def Send(self, buf: np.ndarray, dest: int, tag: int = 0) -> None:
        self.finish(self.comm.Isend(buf, dest, tag))

    def Recv(self, buf: np.ndarray, source: int, tag: int = 0) -> None:
        self.finish(self.comm.Irecv(buf, source, tag))

    def Sendrecv(
        self,
        sendbuf: np.ndarray,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = 0,
        recvtag: int = 0,
    ) -> None:
        receive = self.comm.Irecv(recvbuf, source, recvtag)
        send = self.comm.Isend(sendbuf, dest, sendtag)
        self.finish(receive)
        self.finish(send)

    def Isend(self, buf: np.ndarray, dest: int, tag: int = 0) -> "PatientRequest":
        return PatientRequest(self, self.comm.Isend(buf, dest, tag))

    def Irecv(self, buf: np.ndarray, source: int, tag: int = 0) -> "PatientRequest":
        return PatientRequest(self, self.comm.Irecv(buf, source, tag))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.comm, name)


class PatientRequest:
    """A request whose Wait gives way."""

    def __init__(self, patient: Patient, request: Any):
        self.patient, self.request = patient, request

    def Wait(self, status: Any = None) -> bool:
        self.patient.finish(self.request)
        return True

    def Test(self, status: Any = None) -> bool:
        return self.request.Test()
