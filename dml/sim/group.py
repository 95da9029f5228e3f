"""A virtual communicator without its messages: who belongs to it, where, since when."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from dml.sim.meeting import Meeting, VirtualWindow, meet
from dml.sim.process import Process
from dml.types import SHARED, BadInput, Cache, Op, Platform

LINE = 64  # bytes of a cache line


class Shared:
    """State that all ranks of one virtual communicator share."""

    def __init__(self) -> None:
        self.meeting: Meeting | None = None  # the collective call in progress
        self.hosts: list[int] = []  # of the ranks, computed at the first use
        self.last_host: int | None = None  # the largest of hosts
        self.results: dict[str, Any] = {}  # of `wire.comm.once`, by name


class Group:
    """One rank's end of a group of processes; collective calls as a perfect MPI's."""

    __slots__ = (
        *("_cache", "_platform", "alpha", "beta", "eager", "gamma", "peers"),
        *("process", "rank", "shared", "size"),
    )

    def __init__(self, process: Process, rank: int, peers: list[Any], shared: Shared):
        self.process, self.rank, self.peers = process, rank, peers
        self.size = 0  # known when the group is complete
        self._cache: Cache | None = None
        self._platform: Platform | None = None
        self.alpha, self.beta, self.gamma, self.eager = process.world.rates
        self.shared = shared

    @classmethod
    def group(cls, processes: Sequence[Process]) -> list[Self]:
        """Connect processes; the k-th becomes rank k."""
        peers: list[Self] = []
        shared = Shared()
        for rank, process in enumerate(processes):
            peers.append(cls(process, rank, peers, shared))
        for comm in peers:
            comm.size = len(peers)
        if processes:
            processes[0].world.groups.append(peers)
        return peers

    def Barrier(self) -> None:
        meet(self, "Barrier", None, lambda values: None)

    def Allreduce(self, sendbuf: Any, recvbuf: np.ndarray, op: Op = np.add) -> None:
        """Reduce in rank order, in the time of the lower bound (Chan 2007)."""
        share = (self.size - 1) / self.size * recvbuf.nbytes

        def conclude(buffers: list[np.ndarray]) -> np.ndarray:
            total = buffers[0].copy()
            for buffer in buffers[1:]:
                op(total, buffer, out=total)
            return total

        cost = share * (2 * self.beta + self.gamma)
        recvbuf[...] = meet(self, "Allreduce", recvbuf, conclude, cost)

    def Split(self, color: int = 0, key: int = 0) -> Self:
        def conclude(wishes: list[tuple[int, int]]) -> list[Self]:
            ranks_of: dict[int, list[int]] = {}  # by color
            for rank, (one, _) in enumerate(wishes):
                ranks_of.setdefault(one, []).append(rank)
            mine: dict[int, Self] = {}
            for _, ranks in sorted(ranks_of.items()):
                ranks.sort(key=lambda rank: (wishes[rank][1], rank))
                group = self.group([self.peers[r].process for r in ranks])
                mine |= zip(ranks, group, strict=True)
            return [mine[rank] for rank in range(self.size)]

        self.process.made += 1
        return meet(self, "Split", (color, key), conclude)[self.rank]

    def Split_type(self, split_type: int = SHARED, key: int = 0) -> Self:
        """Make a communicator of the ranks on my host."""
        if split_type != SHARED:
            raise BadInput(f"expected split_type=SHARED ({SHARED}), got {split_type}")
        return self.Split(self.hosts()[self.rank], key)

    def Dup(self) -> Self:
        return self.Split(0, self.rank)

    def Free(self) -> None:
        self._cache = None

    @property
    def cache(self) -> Cache:
        if self._cache is None:
            self._cache = Cache()
        return self._cache

    @property
    def platform(self) -> Platform:
        if self._platform is None:
            self._platform = Platform(
                raw=self,
                hosts=self.hosts,
                shared_window=self.shared_window,
                compute=self.process.compute,
                pause=self.process.pause,
                network=self.process.world.network,
            )
        return self._platform

    def hosts(self) -> list[int]:
        """The host of every rank, numbered by their lowest rank; one list for all."""
        if not self.shared.hosts:
            hosts = self.process.world.hosts()
            names = [hosts[peer.process.rank] for peer in self.peers]
            order = {name: i for i, name in enumerate(dict.fromkeys(names))}
            self.shared.hosts = [order[name] for name in names]
        return self.shared.hosts

    def shared_window(self, nbytes: int) -> VirtualWindow:
        if self.shared.last_host is None:
            self.shared.last_host = max(self.hosts())
        if self.shared.last_host:  # on every rank: one alone would leave the others
            raise BadInput(f"rank {self.rank}: a shared window needs one host")

        def conclude(sizes: list[int]) -> list[np.ndarray]:
            return [_aligned(size) for size in sizes]

        self.process.made += 1
        return VirtualWindow(self, meet(self, "Window", nbytes, conclude))

    def Wtime(self) -> float:
        return self.process.clock

    def Reduce_local(
        self,
        inbuf: np.ndarray,
        inoutbuf: np.ndarray,
        op: Op,
        out: np.ndarray | None = None,
    ) -> None:
        op(inoutbuf, inbuf, out=inoutbuf if out is None else out)
        self.process.clock += self.gamma * inoutbuf.nbytes


def _aligned(nbytes: int) -> np.ndarray:
    """Return zeros that begin at a cache line, as those of real windows do."""
    memory = np.zeros(nbytes + LINE, np.uint8)
    start = -memory.__array_interface__["data"][0] % LINE
    return memory[start : start + nbytes]
