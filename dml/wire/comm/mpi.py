"""The communicator of real ranks: mpi4py's, watched by the watchdog.

Only `mpi_library` imports mpi4py.
"""

import functools
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from operator import index
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from dml.types import (
    ANY,
    SHARED,
    UNDEFINED,
    BadInput,
    Cache,
    Comm,
    Op,
    Platform,
    RankFailed,
    freed,
)
from dml.types.messages import color_of, integer
from dml.types.operations import OPERATIONS, reduce_local, reduction
from dml.wire.comm.mpi_arguments import (
    checked,
    mpi_dest,
    mpi_source,
    mpi_tag,
    refuse_objects,
    refused_probe,
)
from dml.wire.comm.mpi_library import MPI, is_fault_tolerant
from dml.wire.comm.mpi_process import Windows, before_finalize, this_process
from dml.wire.comm.mpi_requests import (
    FAILURES,
    Pending,
    copy_status,
    is_cut,
    mpi_status,
    nbytes_of,
    translated,
)
from dml.wire.comm.tracebacks import exception_text
from dml.wire.comm.watchdog import Watchdog
from dml.wire.memory.window import HEADER, HostWindow, unlink_names

PAUSES = 64  # calls of `pause` between two tests for deaths
KILLED_SECONDS = 1.0  # from an error of MPI to Abort
POLL_SECONDS = 2e-4  # time between two polls of a request while a rank sleeps
STARTED = "DML_STARTED"  # file that each rank creates and changes; see launch/ulfm.py
OUTPUT_SECONDS = 0.2  # in which mpirun prints the last lines of a rank
SLEEP_SHARE = 0.1  # of the elapsed wait; a sleep lasts at least POLL_SECONDS
OPS: dict[Op, MPI.Op] = {
    ufunc: getattr(MPI, name) for name, (ufunc, _) in OPERATIONS.items()
}


@functools.cache
def mpi_op(ufunc: Op, dtype: np.dtype) -> MPI.Op:
    """Return the operation of MPI; that of a float maximum or minimum keeps NaNs.

    MPI.MAX and MPI.MIN lose a NaN or keep it, depending on the order of the ranks. MPI
    has no operations of float16, whose buffers it sees as integers of 16 bits.
    """
    extremum = ufunc in (np.maximum, np.minimum) and dtype.kind == "f"
    if not extremum and dtype != np.float16:
        return OPS[ufunc]

    def combine(terms: Any, totals: Any, _: Any) -> None:
        total = np.frombuffer(totals, dtype)
        ufunc(total, np.frombuffer(terms, dtype), out=total)

    return MPI.Op.Create(combine, commute=True)


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
      made: Communicators made from this one.
      shrinks: Number of calls of Shrink.
      pauses: Number of calls of `pause`.
      freed_rank: The rank, after `Free`.
      watchdog: The watchdog; None for a duplicate of a communicator of mpi4py.
    """

    call: tuple | None = None
    cache: Cache
    platform: Platform
    host_numbers: list[int] | None = None
    windows: Windows
    lineage: tuple = ()
    children: int = 0
    made: list[weakref.ref]
    shrinks: int = 0
    pauses: int = 0
    freed_rank: int
    watchdog: Watchdog | None

    def child_lineage(self, color: int = 0) -> tuple:
        """Return the lineage of the next object made from this communicator."""
        self.children += 1
        return (*self.lineage, self.children, color)

    def set_attributes(
        self, windows: Windows, watchdog: Watchdog | None = None
    ) -> None:
        """Set the attributes that mpi4py's constructor does not set."""
        self.windows, self.watchdog = windows, watchdog
        self.cache = Cache()
        self.made = []
        self.platform = Platform(
            raw=MPI.Intracomm(self),  # not watched
            hosts=self.hosts,
            shared_window=self.shared_window,
            compute=compute,
            pause=self.pause if FAILURES else os.sched_yield,
        )
        if watchdog:
            watchdog.add(self)

    def wrap_child(self, handle: Any, color: int = 0) -> "World":
        """Return a communicator that was made from this one as a World."""
        comm = World(handle)
        comm.lineage = self.child_lineage(color)
        comm.set_attributes(self.windows, self.watchdog)
        self.made.append(weakref.ref(comm))
        return comm

    def Dup(self, info: Any = None) -> "World":
        with self.collective_call("Dup"):
            return self.wrap_child(MPI.Intracomm.Dup(self, info))

    def Split(self, color: int = 0, key: int = 0) -> Any:
        color, key = color_of(color), integer(key, "an integer key")
        with self.collective_call("Split"):
            comm = MPI.Intracomm.Split(self, color, key)
        if color == UNDEFINED:
            self.child_lineage(color)
            return comm
        return self.wrap_child(comm, color)

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
        """Set `call` during a collective call of MPI, and translate its errors."""
        self.call = (name, "size", self.size, 0, range(nbytes))
        try:
            yield
        except MPI.Exception as error:
            raise translated(error, self) from error
        finally:
            self.call = None

    def Free(self) -> None:
        rank = self.rank
        with self.collective_call("Free"):
            MPI.Intracomm.Free(self)
        self.freed_rank = rank
        self.__class__ = FreedWorld

    # ULFM; see Comm.

    def Revoke(self) -> None:
        for reference in self.made:
            child = reference()
            if child is not None and not isinstance(child, FreedWorld):
                child.Revoke()
        MPI.Intracomm.Revoke(self)
        # windows are not fault tolerant: they are neither used nor freed any more
        depth = len(self.lineage)
        for lineage in [key for key in self.windows if key[:depth] == self.lineage]:
            del self.windows[lineage]

    def Agree(self, flag: int) -> int:
        while True:
            MPI.Intracomm.Ack_failed(self)
            try:
                return MPI.Intracomm.Agree(self, flag)
            except MPI.Exception as error:
                # all ranks have this error until all have acknowledged the same deaths
                if error.Get_error_class() != MPI.ERR_PROC_FAILED:
                    raise translated(error, self) from error

    def Shrink(self) -> "World":
        comm = World(MPI.Intracomm.Shrink(self))
        # order matters: ranks may have made different numbers of children before
        self.shrinks += 1
        comm.lineage = (*self.lineage, -self.shrinks, 0)
        comm.set_attributes(self.windows, self.watchdog)
        return comm

    def Abort(self, errorcode: int = 0) -> NoReturn:
        """End all ranks; with ULFM by the end of mpirun, whose exit code is then 1."""
        if is_fault_tolerant():
            # MPI's Abort ends this rank only, and the others wait for it
            time.sleep(OUTPUT_SECONDS)
            os.kill(os.getppid(), signal.SIGTERM)
        MPI.Intracomm.Abort(self, errorcode)

    def Get_failed(self) -> list[int]:  # type: ignore[override]
        failed = MPI.Intracomm.Get_failed(self)
        return sorted(MPI.Group.Translate_ranks(failed, None, self.Get_group()))

    def pause(self) -> None:
        """Yield the processor; raise RankFailed if a wait in a window cannot end."""
        os.sched_yield()
        self.pauses += 1
        if self.pauses % PAUSES == 0:
            self.Iprobe()  # raises unless the death is acknowledged, as by Agree
            if failed := self.Get_failed():
                names = ", ".join(map(str, failed))
                raise RankFailed(f"rank {self.rank}: rank {names} has died")

    # Arguments are checked after an error only, so that valid ones take no time.

    def Send(self, buf, dest, tag=0):
        self.call = ("Send", "dest", dest, tag, buf)
        try:
            refuse_objects(buf)
            MPI.Intracomm.Send(self, [buf, MPI.BYTE], mpi_dest(dest), index(tag))
        except Exception as error:
            self.Send(*checked(self, error, send=(buf, dest, tag)))
        finally:
            self.call = None

    def Recv(self, buf, source=ANY, tag=ANY, status=None):
        self.call = ("Recv", "source", source, tag, buf)
        mpi = None
        try:
            refuse_objects(buf)
            mpi = mpi_status(status, source)
            MPI.Intracomm.Recv(
                self, [buf, MPI.BYTE], mpi_source(source), mpi_tag(tag), mpi
            )
            if mpi is not None:
                copy_status(mpi, status, nbytes_of(buf))
        except Exception as error:
            if not is_cut(error, mpi, status, source):
                arguments = checked(self, error, receive=(buf, source, tag))
                self.Recv(*arguments, status)  # type: ignore[call-arg]
        finally:
            self.call = None

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
        mpi = None
        try:
            refuse_objects(sendbuf)
            refuse_objects(recvbuf)
            mpi = mpi_status(status, source)
            MPI.Intracomm.Sendrecv(
                self,
                [sendbuf, MPI.BYTE],
                mpi_dest(dest),
                index(sendtag),
                [recvbuf, MPI.BYTE],
                mpi_source(source),
                mpi_tag(recvtag),
                mpi,
            )
            if mpi is not None:
                copy_status(mpi, status, nbytes_of(recvbuf))
        except Exception as error:
            if not is_cut(error, mpi, status, source):
                send, receive = (sendbuf, dest, sendtag), (recvbuf, source, recvtag)
                arguments = checked(self, error, send=send, receive=receive)
                self.Sendrecv(*arguments, status)  # type: ignore[call-arg]
        finally:
            self.call = None

    def Isend(self, buf, dest, tag=0):
        try:
            refuse_objects(buf)
            pending = MPI.Intracomm.Isend(
                self, [buf, MPI.BYTE], mpi_dest(dest), index(tag)
            )
        except Exception as error:
            return self.Isend(*checked(self, error, send=(buf, dest, tag)))
        request = Pending(pending)
        request.comm, request.call = self, ("Isend", "dest", dest, tag, buf)
        return request

    def Irecv(self, buf, source=ANY, tag=ANY):
        try:
            refuse_objects(buf)
            pending = MPI.Intracomm.Irecv(
                self, [buf, MPI.BYTE], mpi_source(source), mpi_tag(tag)
            )
        except Exception as error:
            return self.Irecv(*checked(self, error, receive=(buf, source, tag)))
        request = Pending(pending)
        request.comm, request.call = self, ("Irecv", "source", source, tag, buf)
        request.receives = True
        return request

    def Probe(self, source=ANY, tag=ANY, status=None):
        self.call = ("Probe", "source", source, tag, None)
        mpi = None
        try:
            mpi = mpi_status(status, source)
            MPI.Intracomm.Probe(self, mpi_source(source), mpi_tag(tag), mpi)
        except Exception as error:
            raise refused_probe(self, error, source, tag) from error
        finally:
            self.call = None
        copy_status(mpi, status)

    def Iprobe(self, source=ANY, tag=ANY, status=None):
        mpi = arrived = None
        try:
            mpi = mpi_status(status, source)
            arrived = MPI.Intracomm.Iprobe(self, mpi_source(source), mpi_tag(tag), mpi)
        except Exception as error:
            raise refused_probe(self, error, source, tag) from error
        if arrived:
            copy_status(mpi, status)
        return arrived

    def Waitany(self, requests, status=None):
        """Wait for the first completed request; return its index, -1 without one."""
        self.call = ("Waitany", "requests", len(requests), 0, None)
        active = [k for k, each in enumerate(requests) if each != MPI.REQUEST_NULL]
        mpi = MPI.Status()
        try:
            first = MPI.Request.Waitany(requests, mpi)
        except MPI.Exception as error:
            # MPI has set the request to null; there is no index in the exception
            ended = [k for k in active if requests[k] == MPI.REQUEST_NULL]
            if not ended:
                raise translated(error, self) from error
            requests[ended[0]].copy_truncated(error, mpi, status)
            return ended[0]
        finally:
            self.call = None
        if first == MPI.UNDEFINED:
            return -1
        requests[first].copy_status(mpi, status)
        return first

    def Waitall(self, requests):
        for request in requests:
            request.Wait()

    def Barrier(self):
        with self.collective_call("Barrier"):
            MPI.Intracomm.Barrier(self)

    def Ibarrier(self):
        try:
            request = Pending(MPI.Intracomm.Ibarrier(self))
        except MPI.Exception as error:
            raise translated(error, self) from error
        request.comm, request.call = self, ("Barrier", "size", self.size, 0, None)
        return request

    def Allreduce(self, sendbuf, recvbuf, op=np.add):
        """Reduce recvbuf in place if sendbuf is None."""
        sendbuf, ufunc = reduction(sendbuf, recvbuf, op)
        op = mpi_op(ufunc, recvbuf.dtype)
        self.call = ("Allreduce", "size", self.size, 0, recvbuf)
        if recvbuf.dtype == np.float16:
            recvbuf = recvbuf.view(np.uint16)
            sendbuf = None if sendbuf is None else sendbuf.view(np.uint16)
        own = MPI.IN_PLACE if sendbuf is None else sendbuf
        try:
            MPI.Intracomm.Allreduce(self, own, recvbuf, op)
        except MPI.Exception as error:
            raise translated(error, self) from error
        finally:
            self.call = None

    def Reduce_local(
        self,
        inbuf: np.ndarray,
        inoutbuf: np.ndarray,
        op: Op,
        out: np.ndarray | None = None,
    ) -> None:
        try:
            op(inoutbuf, inbuf, out=inoutbuf if out is None else out)
        except (AttributeError, TypeError, ValueError) as error:
            reduce_local(inbuf, inoutbuf, op, out, error)

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
            memory: Any = win.Shared_query(rank)[0]
            memory = MPI.memory.fromaddress(memory.address, len(memory))
            raw.append(memoryview(memory))
        raw[self.rank][:8] = bytes(8)
        self.Barrier()

        def free() -> None:
            if self.windows.pop(lineage, None) is not None:
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
    if comm.watchdog and MPI.Query_thread() == MPI.THREAD_MULTIPLE:
        comm.watchdog.start(watchdog)
    return comm


def end_survivors(comm: World) -> None:
    """Wait for the end of all living ranks, in place of MPI's finalization."""
    comm.Agree(1)
    if STARTED in os.environ:
        Path(os.environ[STARTED]).write_text("ended")


@functools.cache
def initialized_world() -> World:
    """Return the communicator of all ranks; the first call sets up its clean-up."""
    comm = World(MPI.COMM_WORLD.Dup())
    comm.Barrier()
    if STARTED in os.environ:
        Path(os.environ[STARTED]).touch()
    unlink_names()
    name = f"rank {comm.rank} of {comm.size}"
    watchdog = Watchdog(MPI.COMM_WORLD.Dup(), lambda: comm.Abort(1))
    if is_fault_tolerant():
        before_finalize(lambda: end_survivors(comm))
    else:
        before_finalize(watchdog.close)
    comm.set_attributes(this_process().windows, watchdog)

    def abort(error_type: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, MPI.Exception):
            # The sender may have been killed: mpirun then ends this rank, too, with
            # the signal as its exit code. After Abort the code would be 1.
            time.sleep(KILLED_SECONDS)
        text = exception_text(error_type, error or error_type(), trace)
        sys.stderr.write(f"{name}: {text}")
        sys.stderr.flush()
        if comm.size > 1:
            comm.Abort(1)

    sys.excepthook = abort
    threading.excepthook = lambda args: abort(*args[:3])
    return comm
