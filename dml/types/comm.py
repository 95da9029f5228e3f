"""Communicators, requests, windows, and the cache of a communicator."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from dml.types.defaults import no_op
from dml.types.trace import Round

Op = Any  # combines two buffers: np.add, np.maximum, MPI.SUM, ...; see `ufunc_of`
# No constants of MPICH or Open MPI, which differ: mpi4py's own keep their meaning.
ANY = -1001  # as source or tag: matches any message
PROC_NULL = -1002  # as source or dest: no rank; calls with it return at once
UNDEFINED = -32766  # as color of Split, as in MPI: no communicator for this rank
SHARED = 1  # argument of Split_type: ranks of one host
AllReduce = Callable[..., None]  # all_reduce(comm, buffer, op=np.add), in place


TOO_LONG = -1  # count of a message that was cut off
WITHDRAWN = -2  # count of a receive that was cancelled


class RankFailed(Exception):
    """A rank that an operation needs has died, or its communicator was revoked.

    Some ranks may have completed the operation. After `Revoke` it fails on the other
    ranks, too; `Agree` returns on all living ranks whether all have completed it.
    """


class Status:
    """Source, tag and size of a received or pending message, as in mpi4py."""

    def __init__(self) -> None:
        self.source = self.tag = ANY
        self.count = 0  # bytes, or TOO_LONG or WITHDRAWN

    def Get_source(self) -> int:
        return self.source

    def Get_tag(self) -> int:
        return self.tag

    def Get_count(self) -> int:
        return self.count


class Request(Protocol):
    """A send or receive in progress."""

    def Wait(self, status: Any = None) -> bool: ...
    def Test(self, status: Any = None) -> bool: ...
    def Cancel(self) -> None:
        """Withdraw a receive, unless it has a message. Wait then completes it."""
        ...


class Window(Protocol):
    """Memory that all ranks of one host read and write."""

    @property
    def parts(self) -> Sequence[np.ndarray]: ...  # bytes; one array per rank

    def barrier(self, pause: Callable[[], object]) -> None:
        """Barrier of all ranks, which call `pause` while they wait.

        Stores made before the barrier are visible to all ranks after it.
        """
        ...

    def Free(self) -> None: ...


class Comm(Protocol):
    """A communicator: MPI's operations under mpi4py's names, on numpy buffers.

    Further collectives, such as a broadcast, are functions in `wire.collectives`.
    `wire.comm.mpi.world()` returns real communicators, `sim.run` passes virtual ones,
    and `wire.comm.plain.as_comm` converts those of mpi4py.
    `platform` and `cache` hold everything that is not part of MPI.
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def platform(self) -> "Platform": ...
    @property
    def cache(self) -> "Cache": ...

    def Get_rank(self) -> int: ...
    def Get_size(self) -> int: ...
    def Send(self, buf: Any, dest: int, tag: int = 0) -> None: ...
    def Recv(
        self, buf: Any, source: int = ANY, tag: int = ANY, status: Any = None
    ) -> None: ...
    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY,
        recvtag: int = ANY,
        status: Any = None,
    ) -> None: ...
    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request: ...
    def Irecv(self, buf: Any, source: int = ANY, tag: int = ANY) -> Request: ...
    def Probe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> None: ...
    def Iprobe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> bool: ...
    def Waitany(self, requests: Sequence[Any], status: Any = None) -> int:
        """Return the index of the first completed request, -1 if none is active."""
        ...

    def Waitall(self, requests: Sequence[Any]) -> None: ...
    def Barrier(self) -> None: ...
    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = np.add) -> None: ...
    def Split(self, color: int = 0, key: int = 0) -> "Comm":
        """Return a communicator of the ranks of this color, in the order of `key`.

        For UNDEFINED the result is false: mpi4py's COMM_NULL, or None without mpi4py.
        """
        ...

    def Split_type(self, split_type: int = SHARED, key: int = 0) -> "Comm": ...
    def Dup(self) -> "Comm": ...
    def Free(self) -> None: ...
    def Wtime(self) -> float: ...

    # After the death of a rank, under the names of ULFM. Operations that need a dead
    # rank raise RankFailed on virtual ranks, and on Open MPI with `--with-ft ulfm`.

    def Revoke(self) -> None:
        """Make all operations on all ranks fail, except Agree and Shrink.

        Not collective. Communicators that were split from this one are revoked, too.
        """
        ...

    def Is_revoked(self) -> bool: ...
    def Agree(self, flag: int) -> int:
        """Return the bitwise AND of the flags of all living ranks, equal on all."""
        ...

    def Shrink(self) -> "Comm":
        """Return a communicator of the living ranks, in their order."""
        ...

    def Get_failed(self) -> Sequence[int]:
        """Return the ranks that are known to have died."""
        ...

    def Ack_failed(self) -> None:
        """Acknowledge the known deaths: receives from ANY no longer fail by them.

        From the first call on, later deaths make receives from ANY fail. These receives
        remain active, and may be waited for again.
        """
        ...

    def Reduce_local(self, inbuf: Any, inoutbuf: Any, op: Op, out: Any = None) -> None:
        """Store op(inoutbuf, inbuf) in `out`, or in `inoutbuf` if `out` is None.

        On virtual ranks the reduction takes γ seconds per byte.
        """
        ...


class CountedComm(Comm, Protocol):
    """A communicator that counts the bytes that its rank sends, as Metered does."""

    @property
    def bytes_sent(self) -> int: ...


class Platform(NamedTuple):
    """Functions of the platform of a communicator: real processes or virtual ranks.

    Wrappers replace individual functions.

    Attributes:
      raw: Innermost communicator, without wrappers; mpi4py's own on real ranks.
      hosts: Returns the host number of every rank; hosts are numbered in the order of
        their lowest ranks. The first call is collective.
      shared_window: Allocates a window with the given number of bytes per rank;
        collective. All ranks must be on one host.
      compute: compute(seconds, unless=None) advances a virtual clock or sleeps.
        Stops early and returns False if the request `unless` completes before.
      pause: Yields the processor to other ranks; called in polling loops.
      network: The network of virtual ranks; None on real ranks.
      work: work(share) delays the rank by the time of its share of the computation of
        an update, where 1 is an even share. No delay except on a Delayed communicator.
      note: Appends a number read by the program to the recording of a run.
      seconds: seconds(rounds) of a schedule on the network of virtual ranks.
    """

    raw: Any
    hosts: Callable[[], Sequence[int]]
    shared_window: Callable[[int], Window]
    compute: Callable[..., bool]
    pause: Callable[[], object]
    network: Any = None
    work: Callable[[float], object] = no_op
    note: Callable[[int], object] = no_op
    seconds: Callable[[Iterable[Round]], float] | None = None

    @property
    def virtual(self) -> bool:
        return self.network is not None


class Region(NamedTuple):
    """Registered memory: a shared window with one part per rank of a host."""

    window: Window
    parts: Sequence[np.ndarray]  # bytes
    start: int  # address of the first byte of this rank's part
    stop: int  # address after the last byte of this rank's part


Registered = tuple[Window, list[np.ndarray]]  # window, and a view per rank


class Groups(NamedTuple):
    """The communicators of a hierarchical collective."""

    inside: Comm  # the ranks of this rank's group
    across: Comm  # one rank per group: those at this rank's position in their group
    owners: int  # number of chunks, one per rank of the smallest group


@dataclass
class Stage:
    """A small shared window through which unregistered buffers are copied."""

    window: Window
    views: list[list[np.ndarray]]  # views[slot][rank]: buffers of the slot's last use
    next_slot: int = 0


@dataclass
class Cache:
    """State that collectives keep between calls on one communicator.

    Attributes:
      regions: Memory registered by `wire.comm.buffers.allocate`.
      parent: The communicator that this one was split from, and the parent's ranks of
        this one's members. Regions of the parent can be used here.
      chunks: Buffer, window and this rank's chunks of registered buffers, by id.
      copy: Registered memory for copies of unregistered buffers.
      stage: Window for unregistered buffers.
      groups: Groups of hierarchical collectives, by width and by the all-reduce across
        groups.
      chosen: Name of the all-reduce of `auto`, by the name of its candidates, by length
        and itemsize of the buffer and by whether it is registered.
      choices: All-reduces that were measured to be fastest on this machine, by the name
        of the candidates.
      rates: The fields of `wire.costs.allreduce.Rates`, measured on this machine.
      yielding: Wrapper for all-reduces in the background.
      counted: Wrapper that counts bytes, for strategies; see `wire.comm.metered`.
      calls: Number of calls of `wire.comm.once.once_per_call`, by name.
      slots: Window of the slots of `wire.server.slots`.
      abandoned: Sends to ranks that may never receive them, with their buffers.
    """

    regions: list[Region] = field(default_factory=list)
    parent: tuple[Comm, Sequence[int]] | None = None
    chunks: dict[int, tuple[np.ndarray, Registered]] = field(default_factory=dict)
    copy: np.ndarray | None = None
    stage: Stage | None = None
    groups: dict[tuple[int, Any], Groups] = field(default_factory=dict)
    chosen: dict[tuple[str, int, int, bool], str] = field(default_factory=dict)
    choices: dict[str, np.ndarray] = field(default_factory=dict)
    rates: tuple[float, ...] | None = None
    yielding: Any = None
    counted: Any = None
    calls: dict[str, int] = field(default_factory=dict)
    slots: Window | None = None
    abandoned: list[Any] = field(default_factory=list)
