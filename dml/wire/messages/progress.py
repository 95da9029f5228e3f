"""All-reduce in the background: the same code, stopped wherever it would wait."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from greenlet import getcurrent, greenlet

from dml.types import BadInput, Comm, Op
from dml.wire.messages.auto import auto_allreduce


def allreduce_async(
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    allreduce: Callable[..., None] = auto_allreduce,
) -> "Handle":
    """Begin an all-reduce; `poll` or `wait` on the handle, or let a thread do it.

    One at a time on a communicator: give each that may be under way its own `Dup`.
    """
    return Handle(comm, lambda patient: allreduce(patient, buffer, op))


class Handle:
    """A collective under way.

        handle = allreduce_async(comm, bucket)
        while computing: ...; handle.poll()
        handle.wait()

    It runs in a fiber that gives way wherever it would wait, and goes on at the next
    poll. A fiber stays in one thread: the first that polls, or the one of `drive`.
    """

    def __init__(self, comm: Comm, program: Callable[[Any], None]):
        self.patient, self.program = Patient(comm), program
        self.fiber: greenlet | None = None
        self.thread: threading.Thread | None = None
        self.error: BaseException | None = None

    def poll(self) -> bool:
        """Go on as far as possible without waiting; say whether it is done."""
        if self.thread:
            return not self.thread.is_alive()
        if self.fiber is None:
            self.fiber = greenlet(lambda: self.program(self.patient))
        if not self.fiber.dead:
            self.patient.caller = self.fiber.parent = getcurrent()
            self.fiber.switch()
        return self.fiber.dead

    def wait(self) -> None:
        """Go on to the end."""
        if self.thread:
            self.thread.join()
            if self.error:
                raise self.error
        else:
            self.patient.patient = False
            self.poll()

    def drive(self) -> "Handle":
        """Let a thread of its own do it all."""
        if not self.patient.comm.machine:
            raise BadInput("virtual ranks live in one thread; call poll() or wait()")

        def work() -> None:
            try:
                self.program(self.patient.comm)
            except BaseException as error:
                self.error = error

        self.thread = threading.Thread(target=work)
        self.thread.start()
        return self


class Patient:
    """A communicator whose blocking calls give way to the caller till they are done."""

    def __init__(self, comm: Comm):
        self.comm = comm
        self.caller: Any = None
        self.patient = True

    def pause(self) -> None:
        if self.patient:
            self.caller.switch()
        else:
            self.comm.pause()

    def finish(self, request: Any) -> None:
        while self.patient and not request.Test():
            self.caller.switch()
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
