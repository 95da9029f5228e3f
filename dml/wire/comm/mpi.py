"""The real communicator: mpi4py's own, watched. The only home of mpi4py."""

import atexit
import functools
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from mpi4py import MPI

from dml.types import ANY, SHARED, BadInput, Cache, Comm, Op, Platform, Status
from dml.wire.comm.watchdog import Watchdog
from dml.wire.memory.window import HEADER, HostWindow, unlink_names

LOOK = 2e-4  # seconds between two looks for a message that ends a sleep
OPS: dict[Op, MPI.Op] = {
    np.add: MPI.SUM,
    np.multiply: MPI.PROD,
    np.maximum: MPI.MAX,
    np.minimum: MPI.MIN,
}


class Pending(MPI.Request):
    """A request whose Wait the watchdog sees."""

    comm: "World"
    call: tuple

    def Wait(self, status: Any = None) -> Literal[True]:
        self.comm.call = self.call
        with told(status) as found:
            MPI.Request.Wait(self, found)
        self.comm.call = None
        return True

    def Test(self, status: Any = None) -> bool:
        with told(status) as found:
            return MPI.Request.Test(self, found)


@contextmanager
def told(status: Status | None) -> Iterator[MPI.Status | None]:
    """Copy MPI's status to a Status."""
    found = None if status is None else MPI.Status()
    yield found
    if found is not None and status is not None:
        status.source, status.tag = found.Get_source(), found.Get_tag()
        status.count = found.Get_count(MPI.BYTE)


def peer(source: int) -> int:
    return MPI.ANY_SOURCE if source == ANY else source


def kind(tag: int) -> int:
    return MPI.ANY_TAG if tag == ANY else tag


class World(MPI.Intracomm):
    """mpi4py's communicator; `call` is the blocking call of this rank, if any.

    Buffers are sent as bytes, for every dtype; MPI counts them in 64 bits.
    """

    call: tuple | None = None
    cache: Cache
    platform: Platform
    known_hosts: list[int] | None = None
    windows: dict[tuple, MPI.Win]  # of this process, to be freed before MPI ends
    lineage: tuple = ()  # the same on all members, who split and allocate alike
    made: int = 0  # communicators and windows, of this one
    watchdog: Watchdog

    def born(self, color: int = 0) -> tuple:
        """Return a name for the next object made from this communicator."""
        self.made += 1
        return (*self.lineage, self.made, color)

    def equip(self, windows: dict[tuple, MPI.Win], watchdog: Watchdog) -> None:
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

    def adopt(self, handle: Any, color: int = 0) -> "World":
        """Return a World of a communicator that was made from this one."""
        comm = World(handle)
        comm.lineage = self.born(color)
        comm.equip(self.windows, self.watchdog)
        return comm

    def Dup(self, info: Any = None) -> "World":
        with self.waits_for_all("Dup"):
            return self.adopt(MPI.Intracomm.Dup(self, info))

    def Split(self, color: int = 0, key: int = 0) -> "World":
        with self.waits_for_all("Split"):
            return self.adopt(MPI.Intracomm.Split(self, color, key), color)

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
    def waits_for_all(self, name: str, nbytes: int = 0) -> Iterator[None]:
        """Show a collective call of MPI to the watchdog."""
        self.call = (name, "size", self.size, 0, range(nbytes))
        yield
        self.call = None

    def Send(self, buf, dest, tag=0):
        self.call = ("Send", "dest", dest, tag, buf)
        MPI.Intracomm.Send(self, [buf, MPI.BYTE], dest, tag)
        self.call = None

    def Recv(self, buf, source=ANY, tag=ANY, status=None):
        self.call = ("Recv", "source", source, tag, buf)
        with told(status) as found:
            MPI.Intracomm.Recv(self, [buf, MPI.BYTE], peer(source), kind(tag), found)
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
        with told(status) as found:
            MPI.Intracomm.Sendrecv(
                self,
                [sendbuf, MPI.BYTE],
                dest,
                sendtag,
                [recvbuf, MPI.BYTE],
                peer(source),
                kind(recvtag),
                found,
            )
        self.call = None

    def Isend(self, buf, dest, tag=0):
        request = Pending(MPI.Intracomm.Isend(self, [buf, MPI.BYTE], dest, tag))
        request.comm, request.call = self, ("Isend", "dest", dest, tag, buf)
        return request

    def Irecv(self, buf, source=ANY, tag=ANY):
        request = Pending(
            MPI.Intracomm.Irecv(self, [buf, MPI.BYTE], peer(source), kind(tag))
        )
        request.comm, request.call = self, ("Irecv", "source", source, tag, buf)
        return request

    def Probe(self, source=ANY, tag=ANY, status=None):
        self.call = ("Probe", "source", source, tag, None)
        with told(status) as found:
            MPI.Intracomm.Probe(self, peer(source), kind(tag), found)
        self.call = None

    def Iprobe(self, source=ANY, tag=ANY, status=None):
        with told(status) as found:
            return MPI.Intracomm.Iprobe(self, peer(source), kind(tag), found)

    def Waitany(self, requests, status=None):
        """Wait for the first completed request; return its index, -1 without one."""
        self.call = ("Waitany", "requests", len(requests), 0, None)
        with told(status) as found:
            place = MPI.Request.Waitany(requests, found)
        self.call = None
        return -1 if place == MPI.UNDEFINED else place

    def Waitall(self, requests):
        for request in requests:
            request.Wait()

    def Barrier(self):
        with self.waits_for_all("Barrier"):
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
        if self.known_hosts is not None:
            return self.known_hosts
        with self.waits_for_all("hosts"):
            host = MPI.Intracomm.Split_type(self, MPI.COMM_TYPE_SHARED)
            names = self.allgather(host.bcast(self.rank))
            host.Free()
            order = {name: i for i, name in enumerate(dict.fromkeys(names))}
            self.known_hosts = [order[name] for name in names]
        return self.known_hosts

    def shared_window(self, nbytes: int) -> HostWindow:
        if max(self.hosts()):
            raise BadInput(f"rank {self.rank}: a shared window needs one host")
        info = MPI.Info.Create({"alloc_shared_noncontig": "true"})
        with self.waits_for_all("shared_window", nbytes):
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

        lineage = self.born()
        self.windows[lineage] = win
        return HostWindow(self, win, raw, free)


def compute(seconds: float, unless: Any = None) -> bool:
    """Sleep; return False if the request `unless` completed before the end."""
    end = time.perf_counter() + seconds
    while unless is not None and (left := end - time.perf_counter()) > 0:
        if unless.Test():
            return False
        time.sleep(min(left, LOOK))
    if unless is None:
        time.sleep(seconds)
    return True


def machine(comm: Comm) -> str:
    """Name the machine for which a measurement on real ranks is valid."""
    hosts = comm.platform.hosts()
    ranks = "+".join(str(hosts.count(host)) for host in sorted(set(hosts)))
    version = MPI.Get_library_version().split("\n")[0].strip("\0 ")
    return f"{MPI.Get_processor_name()}, {os.cpu_count()} cores, {version}, {ranks}"


def world(watchdog: float = 60) -> World:
    """Return all ranks of this run, on a duplicate of MPI's communicator.

    From here on an uncaught exception ends all ranks, and the watchdog reports calls
    that wait longer than `watchdog` seconds and ends deadlocks; 0 is off. The watchdog
    needs MPI's THREAD_MULTIPLE.
    """
    comm = only_world()
    if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
        comm.watchdog.start(watchdog)
    return comm


@functools.cache
def only_world() -> World:
    comm = World(MPI.COMM_WORLD.Dup())
    comm.Barrier()
    unlink_names()
    name = f"rank {comm.rank} of {comm.size}"
    watchdog = Watchdog(MPI.COMM_WORLD.Dup(), lambda: comm.Abort(1))
    comm.equip({}, watchdog)

    def end(kind: Any, error: BaseException | None, trace: Any) -> None:
        lines = traceback.format_exception(kind, error, trace)
        sys.stderr.write(f"{name}: {''.join(lines)}")
        sys.stderr.flush()
        if comm.size > 1:
            comm.Abort(1)

    def free() -> None:
        # order matters: freeing is collective, and threads may have made them anyhow
        for lineage in sorted(comm.windows):
            win = comm.windows.pop(lineage)
            win.Unlock_all()
            win.Free()
        watchdog.close()

    sys.excepthook = end
    threading.excepthook = lambda args: end(*args[:3])
    atexit.register(free)
    return comm
