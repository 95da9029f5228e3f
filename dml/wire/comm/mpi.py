"""The communicator of real ranks: mpi4py's, watched by the watchdog.

Only this module imports mpi4py.
"""

import atexit
import functools
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from mpi4py import MPI

from dml.types import (
    ANY,
    SHARED,
    TOO_LONG,
    WITHDRAWN,
    BadInput,
    Cache,
    Comm,
    Op,
    Platform,
    Status,
    freed,
)
from dml.wire.comm.tracebacks import exception_text
from dml.wire.comm.watchdog import Watchdog
from dml.wire.memory.window import HEADER, HostWindow, unlink_names

POLL_SECONDS = 2e-4  # time between two polls of a request while a rank sleeps
SLEEP_SHARE = 0.1  # of the elapsed wait; a sleep lasts at least POLL_SECONDS
OPS: dict[Op, MPI.Op] = {
    np.add: MPI.SUM,
    np.multiply: MPI.PROD,
    np.maximum: MPI.MAX,
    np.minimum: MPI.MIN,
}


class Pending(MPI.Request):
    """A request whose Wait is the `call` of its communicator, for the watchdog."""

    comm: "World"
    call: tuple  # as World.call
    cancelled = False

    def Wait(self, status: Any = None) -> Literal[True]:
        mpi = mpi_status(status)
        self.comm.call = self.call
        try:
            MPI.Request.Wait(self, mpi)
        except MPI.Exception as error:
            copy_truncated(error, mpi, status)
            return True
        finally:
            self.comm.call = None
        copy_status(mpi, status)
        if self.cancelled and mpi and status is not None and mpi.Is_cancelled():
            status.count = WITHDRAWN
        return True

    def Test(self, status: Any = None) -> bool:
        mpi = mpi_status(status)
        try:
            completed = MPI.Request.Test(self, mpi)
        except MPI.Exception as error:
            copy_truncated(error, mpi, status)
            return True
        copy_status(mpi, status)
        return completed

    def Cancel(self) -> None:
        """Withdraw a receive, unless a message is matched with it."""
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
    error: MPI.Exception, mpi: MPI.Status | None, status: Status | None
) -> None:
    """Copy the status of a message longer than its buffer; raise other errors.

    Without a status it is an error, too.
    """
    if status is None or error.Get_error_class() != MPI.ERR_TRUNCATE:
        raise error
    copy_status(mpi, status)
    status.count = TOO_LONG


def mpi_source(source: int) -> int:
    return MPI.ANY_SOURCE if source == ANY else source


def mpi_tag(tag: int) -> int:
    return MPI.ANY_TAG if tag == ANY else tag


class World(MPI.Intracomm):
    """mpi4py's communicator, with the attributes of a Comm and of the watchdog.

    Buffers of every dtype are sent as bytes.

    Attributes:
      call: The blocking call of this rank, if any: its name; what the next field is
        ("dest", "source", "rank", "size" or "requests"); a rank, size or number of
        requests; the tag; and the buffer.
      host_numbers: Result of `hosts` after its first call.
      windows: Windows of this process, by lineage, to be freed before MPI ends.
      lineage: Name of the communicator, equal on all members, because all members make
        communicators and windows in the same order.
      children: Number of communicators and windows made from this one.
      freed_rank: The rank, after `Free`.
    """

    call: tuple | None = None
    cache: Cache
    platform: Platform
    host_numbers: list[int] | None = None
    windows: dict[tuple, MPI.Win]
    lineage: tuple = ()
    children: int = 0
    freed_rank: int
    watchdog: Watchdog

    def child_lineage(self, color: int = 0) -> tuple:
        """Return the lineage of the next object made from this communicator."""
        self.children += 1
        return (*self.lineage, self.children, color)

    def set_attributes(self, windows: dict[tuple, MPI.Win], watchdog: Watchdog) -> None:
        """Set the attributes that mpi4py's constructor does not set."""
        self.windows, self.watchdog = windows, watchdog
        self.cache = Cache()
        self.platform = Platform(
            raw=MPI.Intracomm(self),  # not watched
            hosts=self.hosts,
            shared_window=self.shared_window,
            compute=compute,
            pause=os.sched_yield,
        )
        watchdog.add(self)

    def wrap_child(self, handle: Any, color: int = 0) -> "World":
        """Return a communicator that was made from this one as a World."""
        comm = World(handle)
        comm.lineage = self.child_lineage(color)
        comm.set_attributes(self.windows, self.watchdog)
        return comm

    def Dup(self, info: Any = None) -> "World":
        with self.collective_call("Dup"):
            return self.wrap_child(MPI.Intracomm.Dup(self, info))

    def Split(self, color: int = 0, key: int = 0) -> "World":
        with self.collective_call("Split"):
            return self.wrap_child(MPI.Intracomm.Split(self, color, key), color)

    def Split_type(self, split_type: int = SHARED, key: int = 0, info: Any = None):
        """Return a communicator of the ranks on this host."""
        if split_type != SHARED:
            raise BadInput(f"expected split_type=SHARED ({SHARED}), got {split_type}")
        return self.Split(self.hosts()[self.rank], key)

    @functools.cached_property
    def members(self) -> tuple[int, ...]:
        """The ranks of this communicator, numbered as in MPI's world."""
        world = MPI.COMM_WORLD.Get_group()
        return tuple(MPI.Group.Translate_ranks(self.Get_group(), None, world))

    @contextmanager
    def collective_call(self, name: str, nbytes: int = 0) -> Iterator[None]:
        """Set `call` during a collective call of MPI."""
        self.call = (name, "size", self.size, 0, range(nbytes))
        yield
        self.call = None

    def Free(self) -> None:
        rank = self.rank
        with self.collective_call("Free"):
            MPI.Intracomm.Free(self)
        self.freed_rank = rank
        self.__class__ = FreedWorld

    def Send(self, buf, dest, tag=0):
        self.call = ("Send", "dest", dest, tag, buf)
        MPI.Intracomm.Send(self, [buf, MPI.BYTE], dest, tag)
        self.call = None

    def Recv(self, buf, source=ANY, tag=ANY, status=None):
        self.call = ("Recv", "source", source, tag, buf)
        mpi = mpi_status(status)
        try:
            MPI.Intracomm.Recv(
                self, [buf, MPI.BYTE], mpi_source(source), mpi_tag(tag), mpi
            )
        except MPI.Exception as error:
            copy_truncated(error, mpi, status)
            return
        finally:
            self.call = None
        copy_status(mpi, status)

    def Sendrecv(
        self,
        sendbuf,
        dest,
        sendtag=0,
        recvbuf=None,
        source=ANY,
        recvtag=ANY,
        status=None,
    ):
        self.call = ("Sendrecv", "source", source, recvtag, recvbuf)
        mpi = mpi_status(status)
        MPI.Intracomm.Sendrecv(
            self,
            [sendbuf, MPI.BYTE],
            dest,
            sendtag,
            [recvbuf, MPI.BYTE],
            mpi_source(source),
            mpi_tag(recvtag),
            mpi,
        )
        self.call = None
        copy_status(mpi, status)

    def Isend(self, buf, dest, tag=0):
        request = Pending(MPI.Intracomm.Isend(self, [buf, MPI.BYTE], dest, tag))
        request.comm, request.call = self, ("Isend", "dest", dest, tag, buf)
        return request

    def Irecv(self, buf, source=ANY, tag=ANY):
        request = Pending(
            MPI.Intracomm.Irecv(self, [buf, MPI.BYTE], mpi_source(source), mpi_tag(tag))
        )
        request.comm, request.call = self, ("Irecv", "source", source, tag, buf)
        return request

    def Probe(self, source=ANY, tag=ANY, status=None):
        self.call = ("Probe", "source", source, tag, None)
        mpi = mpi_status(status)
        MPI.Intracomm.Probe(self, mpi_source(source), mpi_tag(tag), mpi)
        self.call = None
        copy_status(mpi, status)

    def Iprobe(self, source=ANY, tag=ANY, status=None):
        mpi = mpi_status(status)
        arrived = MPI.Intracomm.Iprobe(self, mpi_source(source), mpi_tag(tag), mpi)
        copy_status(mpi, status)
        return arrived

    def Waitany(self, requests, status=None):
        """Wait for the first completed request; return its index, -1 without one."""
        self.call = ("Waitany", "requests", len(requests), 0, None)
        active = [k for k, each in enumerate(requests) if each != MPI.REQUEST_NULL]
        mpi = mpi_status(status)
        try:
            index = MPI.Request.Waitany(requests, mpi)
        except MPI.Exception as error:
            # MPI has set the request to null; there is no index in the exception
            copy_truncated(error, mpi, status)
            return next(k for k in active if requests[k] == MPI.REQUEST_NULL)
        finally:
            self.call = None
        copy_status(mpi, status)
        return -1 if index == MPI.UNDEFINED else index

    def Waitall(self, requests):
        for request in requests:
            request.Wait()

    def Barrier(self):
        with self.collective_call("Barrier"):
            MPI.Intracomm.Barrier(self)

    def Allreduce(self, sendbuf, recvbuf, op=np.add):
        """Reduce recvbuf in place if sendbuf is None."""
        self.call = ("Allreduce", "size", self.size, 0, recvbuf)
        MPI.Intracomm.Allreduce(self, sendbuf, recvbuf, OPS[op])
        self.call = None

    def Reduce_local(
        self,
        inbuf: np.ndarray,
        inoutbuf: np.ndarray,
        op: Op,
        out: np.ndarray | None = None,
    ) -> None:
        op(inoutbuf, inbuf, out=inoutbuf if out is None else out)

    def Wtime(self) -> float:
        return time.perf_counter()

    def hosts(self) -> list[int]:
        """Return the host of every rank; hosts are numbered by their lowest rank."""
        if self.host_numbers is not None:
            return self.host_numbers
        with self.collective_call("hosts"):
            host = MPI.Intracomm.Split_type(self, MPI.COMM_TYPE_SHARED)
            # one rank of its host, for every rank
            leaders = self.allgather(host.bcast(self.rank))
            host.Free()
            numbers = {leader: n for n, leader in enumerate(dict.fromkeys(leaders))}
            self.host_numbers = [numbers[leader] for leader in leaders]
        return self.host_numbers

    def shared_window(self, nbytes: int) -> HostWindow:
        if max(self.hosts()):
            raise BadInput(
                f"rank {self.rank}: expected all ranks of a shared window on one host, "
                f"got {max(self.hosts()) + 1} hosts; split the communicator by host"
            )
        info = MPI.Info.Create({"alloc_shared_noncontig": "true"})
        with self.collective_call("shared_window", nbytes):
            win = MPI.Win.Allocate_shared(HEADER + nbytes, 1, info, self)
        info.Free()
        win.Lock_all(MPI.MODE_NOCHECK)
        raw = []
        for rank in range(self.size):
            memory = win.Shared_query(rank)[0]
            memory = MPI.memory.fromaddress(memory.address, len(memory))
            raw.append(memoryview(memory))  # type: ignore[arg-type]
        raw[self.rank][:8] = bytes(8)
        self.Barrier()

        def free() -> None:
            del self.windows[lineage]
            win.Unlock_all()
            win.Free()

        lineage = self.child_lineage()
        self.windows[lineage] = win
        return HostWindow(self, win, raw, free)


class FreedWorld(freed(World)):  # type: ignore[misc]
    """A freed communicator; MPI no longer knows its rank."""

    @property
    def rank(self) -> int:
        return self.freed_rank


def compute(seconds: float, unless: Any = None) -> bool:
    """Sleep; return False if the request `unless` completes before the end.

    The interval between two tests of the request is a tenth of the elapsed time.
    """
    begun = time.perf_counter()
    while unless is not None and (waited := time.perf_counter() - begun) < seconds:
        if unless.Test():
            return False
        time.sleep(min(seconds - waited, max(POLL_SECONDS, SLEEP_SHARE * waited)))
    if unless is None:
        time.sleep(seconds)
    return True


def machine(comm: Comm) -> str:
    """Return a name for this processor, MPI library and number of ranks per host."""
    hosts = comm.platform.hosts()
    ranks_per_host = "+".join(str(hosts.count(host)) for host in sorted(set(hosts)))
    version = MPI.Get_library_version().split("\n")[0].strip("\0 ")
    name, cores = MPI.Get_processor_name(), os.cpu_count()
    return f"{name}, {cores} cores, {version}, {ranks_per_host}"


def world(watchdog: float = 60) -> World:
    """Return the communicator of all ranks of this run, a duplicate of COMM_WORLD.

    After this call an uncaught exception ends all ranks, and the watchdog reports calls
    that wait longer than `watchdog` seconds and ends deadlocks; 0 switches it off. The
    watchdog needs MPI's THREAD_MULTIPLE.
    """
    comm = initialized_world()
    if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
        comm.watchdog.start(watchdog)
    return comm


@functools.cache
def initialized_world() -> World:
    """Return the communicator of all ranks; the first call sets up its clean-up."""
    comm = World(MPI.COMM_WORLD.Dup())
    comm.Barrier()
    unlink_names()
    name = f"rank {comm.rank} of {comm.size}"
    watchdog = Watchdog(MPI.COMM_WORLD.Dup(), lambda: comm.Abort(1))
    comm.set_attributes({}, watchdog)

    def abort(error_type: Any, error: BaseException | None, trace: Any) -> None:
        text = exception_text(error_type, error or error_type(), trace)
        sys.stderr.write(f"{name}: {text}")
        sys.stderr.flush()
        if comm.size > 1:
            comm.Abort(1)

    def free() -> None:
        # order matters: freeing is collective, and threads may have made the windows in
        # different orders
        for lineage in sorted(comm.windows):
            win = comm.windows.pop(lineage)
            win.Unlock_all()
            win.Free()
        watchdog.close()

    sys.excepthook = abort
    threading.excepthook = lambda args: abort(*args[:3])
    atexit.register(free)
    return comm
