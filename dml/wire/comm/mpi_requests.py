"""Requests, statuses and errors of mpi4py under the contracts of dml."""

from typing import Any, Literal

from dml.types import ANY, PROC_NULL, TOO_LONG, WITHDRAWN, BadInput, RankFailed, Status
from dml.types.messages import set_status, truncated
from dml.wire.comm.mpi_library import MPI

DML_RANKS = {MPI.ANY_SOURCE: ANY, MPI.PROC_NULL: PROC_NULL}

# Without ULFM, MPI maps these classes to one for unknown errors.
FAILURES = {*(MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED)} - {
    MPI.ERR_UNKNOWN
}


# Classes of errors inside a collective call after a death or a revocation.
UNSPECIFIC = MPI.ERR_OTHER, MPI.ERR_INTERN, MPI.ERR_UNKNOWN


def translated(error: Exception, comm: Any) -> Exception:
    """Return RankFailed for a death or a revocation, and other errors unchanged.

    Args:
      error: Error of an operation.
      comm: World of the operation.
    """
    if not isinstance(error, MPI.Exception):
        return error
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
    receives = False
    cancelled = False

    def Wait(self, status: Any = None) -> Literal[True]:
        mpi = mpi_status(status, self.call[2])
        self.comm.call = self.call
        try:
            MPI.Request.Wait(self, mpi)
        except MPI.Exception as error:
            self.copy_truncated(error, mpi, status)
            return True
        finally:
            self.comm.call = None
        self.copy_status(mpi, status)
        return True

    def Test(self, status: Any = None) -> bool:
        mpi = mpi_status(status, self.call[2])
        try:
            completed = MPI.Request.Test(self, mpi)
        except MPI.Exception as error:
            self.copy_truncated(error, mpi, status)
            return True
        if completed:
            self.copy_status(mpi, status)
        return completed

    def copy_status(self, mpi: MPI.Status | None, status: Status | None) -> None:
        """Copy the fields of MPI's status, or WITHDRAWN, to `status`."""
        if self.receives:
            copy_status(mpi, status, nbytes_of(self.call[-1]))
        elif status is not None:  # MPI does not define the status of a send
            _, _, dest, tag, _ = self.call
            set_status(status, dest, tag, 0)
        if self.cancelled and mpi and status is not None and mpi.Is_cancelled():
            set_status(status, status.source, status.tag, WITHDRAWN)

    def copy_truncated(
        self, error: MPI.Exception, mpi: MPI.Status | None, status: Status | None
    ) -> None:
        """Copy the status of a message that was cut; raise other errors."""
        if not is_cut(error, mpi, status, self.call[2]):
            raise translated(error, self.comm) from error

    def Cancel(self) -> None:
        """Withdraw a receive, unless a message is matched with it, or it failed."""
        if self:
            MPI.Request.Cancel(self)
        self.cancelled = True


# Functions, not a context manager, which would take a microsecond per call.
def mpi_status(status: Status | None, source: int) -> MPI.Status | None:
    """Return a status for a receive, to be read by `copy_status`.

    A receive from ANY needs one: MPICH cuts a short message without an error.
    """
    return None if status is None and source >= 0 else MPI.Status()


def copy_status(
    mpi: MPI.Status | None, status: Status | None, most: float = float("inf")
) -> None:
    """Copy the fields of MPI's status; refuse a message of more than `most` bytes.

    Raises:
      BadInput: The message was longer, and there is no status to tell it.
    """
    if mpi is None:
        return
    count, source = mpi.Get_count(MPI.BYTE), DML_RANKS.get(mpi.source, mpi.source)
    if count > most:
        if status is None:
            raise truncated(source)
        count = TOO_LONG
    if status is not None:
        tag = ANY if mpi.tag == MPI.ANY_TAG else mpi.tag
        set_status(status, source, tag, count)


def is_cut(
    error: Exception, mpi: MPI.Status | None, status: Status | None, source: int
) -> bool:
    """Return whether a message was longer than its buffer, and set the status.

    Raises:
      BadInput: It was, and there is no status to tell it.
    """
    if isinstance(error, BadInput):  # of copy_status
        raise error
    if not isinstance(error, MPI.Exception):
        return False
    if error.Get_error_class() != MPI.ERR_TRUNCATE:
        return False
    if status is None:
        raise truncated(DML_RANKS.get(mpi.source, mpi.source) if mpi else source)
    copy_status(mpi, status)
    set_status(status, status.source, status.tag, TOO_LONG)
    return True


def nbytes_of(buffer: Any) -> int:
    """Return the length of a buffer of mpi4py."""
    if buffer is None:
        return 0
    nbytes = getattr(buffer, "nbytes", None)
    return memoryview(buffer).nbytes if nbytes is None else nbytes
