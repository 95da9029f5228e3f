"""The state of MPI on one virtual rank."""

from contextvars import ContextVar
from typing import Any, NamedTuple

from dml.sim.mpi.constants import error


class Options(NamedTuple):
    """Options of a run that all ranks share."""

    collectives: str = "mpich"  # key of COLLECTIVES
    trace: Any = None  # a `Trace`, or None


class Aborted(BaseException):
    """The end of a run by Abort, or by os._exit of a script."""

    def __init__(self, code: int, rank: int):
        super().__init__(f"rank {rank} ended the run with code {code}")
        self.code, self.rank = code, rank


class Rank:
    """State of one rank, in addition to its communicators.

    Attributes:
      comm: The virtual communicator of all ranks.
      world, self: COMM_WORLD and COMM_SELF, made at their first use.
      messages, nbytes: Number of messages sent, and their bytes.
      operations: Number of operations of Op.Create that are not freed.
      attached: Bytes of the buffer of Bsend; None without one.
    """

    def __init__(self, comm: Any, options: Options):
        self.comm, self.options = comm, options
        self.world: Any = None
        self.self: Any = None
        self.messages = self.nbytes = self.operations = 0
        self.attached: Any = None
        self.initialized, self.finalized = True, False
        self.modules: dict[str, Any] = {}  # of a script: its own, by name

    @property
    def process(self) -> Any:
        return self.comm.process

    def release(self) -> None:
        """Drop references to this rank, so that its memory is freed without cycles."""
        self.world = self.self = None
        self.modules.clear()

    def abort(self, code: int) -> None:
        """End the run on all ranks."""
        self.process.world.hub.throw(Aborted(code, self.comm.rank))


CURRENT: ContextVar[Rank] = ContextVar("CURRENT")


def current() -> Rank:
    """Return the rank that runs."""
    rank = CURRENT.get(None)
    if rank is None:
        raise error(
            "ERR_OTHER",
            "expected a call of MPI on a virtual rank, got one outside of MPI.run, or "
            "in a thread; call it in the program, in its own thread",
        )
    return rank
