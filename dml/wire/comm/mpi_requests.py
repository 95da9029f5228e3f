"""Requests, statuses and errors of mpi4py under the contracts of dml."""

from typing import Any, Literal

from dml.types import TOO_LONG, WITHDRAWN, RankFailed, Status
from dml.wire.comm.mpi_library import MPI

# Without ULFM, MPI maps these classes to one for unknown errors.
FAILURES = {*(MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED)} - {
    MPI.ERR_UNKNOWN
}


# Classes of errors inside a collective call after a death or a revocation.
UNSPECIFIC = MPI.ERR_OTHER, MPI.ERR_INTERN, MPI.ERR_UNKNOWN


def translated(error: MPI.Exception, comm: Any) -> Exception:
    """Return RankFailed for a death or a revocation, and other errors unchanged.

    Args:
      error: Error of an operation.
      comm: World of the operation.
    """
    code = error.Get_error_class()
    failed = code in FAILURES
    if FAILURES and code in UNSPECIFIC:
        failed = comm.Is_revoked() or bool(comm.Get_failed())
    if failed:
        return RankFailed(f"rank {comm.rank}: {error.Get_error_string()}")
    return error


class Pending(MPI.Request):
    """A request whose Wait is the `call` of its communicator, for the watchdog."""

    comm: Any  # World
    call: tuple  # as World.call
    cancelled = False

    def Wait(self, status: Any = None) -> Literal[True]:
        mpi = mpi_status(status)
        self.comm.call = self.call
        try:
            MPI.Request.Wait(self, mpi)
        except MPI.Exception as error:
            copy_truncated(error, self.comm, mpi, status)
            return True
        finally:
            self.comm.call = None
        self.copy_status(mpi, status)
        return True

    def Test(self, status: Any = None) -> bool:
        mpi = mpi_status(status)
        try:
            completed = MPI.Request.Test(self, mpi)
        except MPI.Exception as error:
            copy_truncated(error, self.comm, mpi, status)
            return True
        if completed:
            self.copy_status(mpi, status)
        return completed

    def copy_status(self, mpi: MPI.Status | None, status: Status | None) -> None:
        """Copy the fields of MPI's status, or WITHDRAWN, to `status`."""
        copy_status(mpi, status)
        if self.cancelled and mpi and status is not None and mpi.Is_cancelled():
            status.count = WITHDRAWN

    def Cancel(self) -> None:
        """Withdraw a receive, unless a message is matched with it, or it failed."""
        if self:
            MPI.Request.Cancel(self)
        self.cancelled = True


# Two functions, not a context manager, which would take a microsecond per call.
def mpi_status(status: Status | None) -> MPI.Status | None:
    """Return a status for a call of MPI, whose fields are copied to `status` later."""
    return None if status is None else MPI.Status()


def copy_status(mpi: MPI.Status | None, status: Status | None) -> None:
    """Copy the fields of MPI's status to `status`."""
    if mpi is not None and status is not None:
        status.source, status.tag = mpi.source, mpi.tag
        status.count = mpi.Get_count(MPI.BYTE)


def copy_truncated(
    error: MPI.Exception, comm: Any, mpi: MPI.Status | None, status: Status | None
) -> None:
    """Copy the status of a message longer than its buffer; raise other errors.

    Without a status it is an error, too.
    """
    if status is None or error.Get_error_class() != MPI.ERR_TRUNCATE:
        raise translated(error, comm) from error
    copy_status(mpi, status)
    status.count = TOO_LONG
