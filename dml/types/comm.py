"""Communicators under mpi4py's names, and what collectives keep for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from dml.types.defaults import nothing

Op = np.ufunc  # how two buffers become one: np.add, np.maximum, ...
ANY = -1  # as a source or a tag: whichever comes first
SHARED = 1  # Split_type's only kind: the ranks of a host
AllReduce = Callable[..., None]  # all_reduce(comm, buffer, op=np.add), in place


class Status:
    """Who sent what was received, or what waits: mpi4py's names."""

    def __init__(self) -> None:
        self.source = self.tag = -1
        self.count = 0  # bytes

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


class Window(Protocol):
    """Memory that every rank of one host reads and writes."""

    @property
    def parts(self) -> Sequence[np.ndarray]: ...  # bytes, one array a rank

    def meet(self, pause: Callable[[], object]) -> None:
        """Barrier of all ranks; stores made before it are visible after it."""
        ...

    def Free(self) -> None: ...


class Comm(Protocol):
    """A communicator: MPI's operations under mpi4py's names, on numpy buffers.

    Real communicators come from `wire.comm.mpi.world()`, virtual ones from
    `sim.run`. What MPI does not have is in `platform` and `cache`.
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def platform(self) -> "Platform": ...
    @property
    def cache(self) -> "Cache": ...

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
    def Split(self, color: int = 0, key: int = 0) -> "Comm": ...
    def Split_type(self, split_type: int = SHARED, key: int = 0) -> "Comm": ...
    def Dup(self) -> "Comm": ...
    def Free(self) -> None: ...
    def Wtime(self) -> float: ...
    def Reduce_local(self, inbuf: Any, inoutbuf: Any, op: Op, out: Any = None) -> None:
        """Set out, or inoutbuf, to op(inoutbuf, inbuf); γ a byte on virtual ranks."""
        ...


class CountedComm(Comm, Protocol):
    """A communicator that counts the bytes it sends: Metered(comm)."""

    @property
    def bytes_sent(self) -> int: ...


class Platform(NamedTuple):
    """What the ranks of a communicator run on: real processes or virtual ranks.

    A wrapper replaces the functions that it changes.

    Attributes:
      raw: The communicator below all wrappers; mpi4py's own on real ranks.
      hosts: Returns the host of every rank; hosts are numbered by their lowest rank.
        Collective at the first call.
      shared_window: Makes a window with so many bytes for every rank; collective. All
        ranks must be on one host.
      compute: compute(seconds, unless=None) advances a virtual clock or sleeps. It
        returns False if the request `unless` completed before the end.
      pause: Lets other ranks run; for loops that poll.
      network: The network of virtual ranks; None on real ranks.
      work: Takes the time of this share of an update's computation, where 1 is an even
        share. No time, except on a Delayed communicator.
      note: Adds a number that the program has read to a recorded run.
    """

    raw: Any
    hosts: Callable[[], Sequence[int]]
    shared_window: Callable[[int], Window]
    compute: Callable[..., bool]
    pause: Callable[[], object]
    network: Any = None
    work: Callable[[float], object] = nothing
    note: Callable[[int], object] = nothing

    @property
    def virtual(self) -> bool:
        return self.network is not None


class Region(NamedTuple):
    """Registered memory: one part a rank of the communicator, all on one host."""

    window: Window
    parts: Sequence[np.ndarray]  # bytes
    start: int  # address of this rank's part
    stop: int


Registered = tuple[Window, list[np.ndarray]]  # all ranks' views of registered memory


class Groups(NamedTuple):
    """The communicators of a hierarchical collective."""

    inside: Comm  # this rank's group
    across: Comm  # the ranks with this rank's place in every group
    owners: int  # ranks of the smallest group: the number of chunks


@dataclass
class Stage:
    """A small window through which plain buffers pass, slot after slot."""

    window: Window
    views: list[list[np.ndarray]]  # by slot: all ranks' buffers of its last use
    turn: int = 0  # the next slot


@dataclass
class Cache:
    """What collectives keep for one communicator between calls.

    Attributes:
      regions: Memory registered by `wire.comm.buffers.allocate`.
      parent: A communicator and the ranks in it that are this one's: its regions are
        known here, too.
      chunks: Of registered buffers, by id: the buffer, its window, this rank's chunks.
      copy: Registered memory for plain buffers.
      stage: The window for plain buffers.
      groups: Of hierarchical collectives, by width and the all-reduce across groups.
      chosen: The predicted fastest all-reduce by length, itemsize and whether the
        buffer is registered.
      rates: The fields of `wire.costs.allreduce.Rates`, measured on this machine.
      patient: The wrapper for all-reduces in the background.
    """

    regions: list[Region] = field(default_factory=list)
    parent: tuple[Comm, Sequence[int]] | None = None
    chunks: dict[int, tuple[np.ndarray, Registered]] = field(default_factory=dict)
    copy: np.ndarray | None = None
    stage: Stage | None = None
    groups: dict[tuple[int, Any], Groups] = field(default_factory=dict)
    chosen: dict[tuple[int, int, bool], str] = field(default_factory=dict)
    rates: tuple[float, ...] | None = None
    patient: Any = None
