"""A virtual communicator without messages: hosts, splits and collective calls."""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_
from typing import Any, Self

import numpy as np

from dml.sim import failures
from dml.sim.collective_calls import CollectiveCall, VirtualWindow, run_collective
from dml.sim.process import Process
from dml.types import SHARED, UNDEFINED, BadInput, Cache, Op, Platform, Round, freed
from dml.types.messages import as_vector, color_of, integer, null_comm
from dml.types.operations import reduce_local, reduction

MOST_MESSAGES = 2_000_000  # of a schedule, above which some are extrapolated

LINE = 64  # bytes of a cache line


class Shared:
    """State that all ranks of one virtual communicator share."""

    def __init__(self) -> None:
        self.call: CollectiveCall | None = None  # the collective call in progress
        self.hosts: list[int] = []  # of each rank, computed at the first use
        self.last_host: int | None = None  # the largest of hosts
        self.results: dict[str, Any] = {}  # of `wire.comm.once`, by name
        self.failed: set[int] = set()  # ranks that have died
        self.agreements: dict[int, Any] = {}  # in progress, by number
        self.children: list[list[Any]] = []  # groups that were split from this one


class Group:
    """One rank's communicator: a group of processes, and collective calls.

    It has no `__getattr__`, with which Python looks up every attribute slowly.
    """

    __slots__ = (
        *("_cache", "_platform", "acknowledged", "agreements", "alpha", "beta"),
        *("eager", "gamma", "peers", "process", "rank", "shared", "size"),
    )
    revoked = False

    def __init__(self, process: Process, rank: int, peers: list[Any], shared: Shared):
        self.process, self.rank, self.peers = process, rank, peers
        self.size = 0  # set when the group is complete
        self._cache: Cache | None = None
        self._platform: Platform | None = None
        self.alpha, self.beta, self.gamma, self.eager = process.world.rates
        self.shared = shared
        self.agreements = 0  # number of agreements that this rank has entered
        self.acknowledged: set[int] | None = None  # deaths; None: without Ack_failed

    @classmethod
    def group(cls, processes: Sequence[Process]) -> list[Self]:
        """Return the communicators of a new group; the k-th process becomes rank k."""
        peers: list[Self] = []
        shared = Shared()
        for rank, process in enumerate(processes):
            peers.append(cls(process, rank, peers, shared))
        for comm in peers:
            comm.size = len(peers)
        if processes:
            processes[0].world.groups.append(peers)
        return peers

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Barrier(self) -> None:
        run_collective(self, "Barrier", None, lambda values: None)

    def Allreduce(self, sendbuf: Any, recvbuf: np.ndarray, op: Op = np.add) -> None:
        """Reduce in rank order; the time is the lower bound of Chan 2007."""
        sendbuf, ufunc = reduction(sendbuf, recvbuf, op)
        own = as_vector(recvbuf if sendbuf is None else sendbuf)
        nbytes = (self.size - 1) / self.size * own.nbytes

        def combine(values: list[tuple[np.ndarray, np.ufunc]]) -> np.ndarray:
            check_equal(values)
            total = values[0][0].copy()
            for vector, _ in values[1:]:
                ufunc(total, vector, out=total)
            return total

        cost = nbytes * (2 * self.beta + self.gamma)
        total = run_collective(self, "Allreduce", (own, ufunc), combine, cost)
        as_vector(recvbuf)[...] = total

    def Split(self, color: int = 0, key: int = 0) -> Any:
        """Return a communicator of the ranks of this color; see `Comm.Split`."""

        def combine(choices: list[tuple[int, int]]) -> list[Any]:
            ranks_of: dict[int, list[int]] = {}  # by color
            for rank, (group_color, _) in enumerate(choices):
                if group_color != UNDEFINED:
                    ranks_of.setdefault(group_color, []).append(rank)
            comms: dict[int, Any] = {}  # by rank
            for _, ranks in sorted(ranks_of.items()):
                ranks.sort(key=lambda rank: (choices[rank][1], rank))
                group = self.group([self.peers[r].process for r in ranks])
                self.shared.children.append(group)
                comms |= zip(ranks, group, strict=True)
            return [comms.get(rank) for rank in range(self.size)]

        choice = color_of(color), integer(key, "an integer key")
        self.process.created += 1
        comm = run_collective(self, "Split", choice, combine)[self.rank]
        return null_comm() if comm is None else comm

    def Split_type(self, split_type: int = SHARED, key: int = 0) -> Self:
        """Return a communicator of the ranks on this rank's host."""
        if split_type != SHARED:
            raise BadInput(f"expected split_type=SHARED ({SHARED}), got {split_type}")
        return self.Split(self.hosts()[self.rank], key)

    def Dup(self) -> Self:
        return self.Split(0, self.rank)

    def Free(self) -> None:
        self._cache = None
        self.__class__ = freed(type(self))  # type: ignore[arg-type]

    def Revoke(self) -> None:
        failures.revoke(self)

    def Is_revoked(self) -> bool:
        self.process.order(self.process.clock)
        return self.revoked

    def Agree(self, flag: int) -> int:
        return failures.agree(self, flag, lambda flags: reduce(and_, flags.values()))

    def Shrink(self) -> Self:
        """Return a communicator of the living ranks, in their order."""
        kind = failures.unrevoked(type(self))

        def combine(entered: dict[int, Any]) -> dict[int, Self]:
            ranks = sorted(set(entered) - self.shared.failed)
            group = kind.group([self.peers[rank].process for rank in ranks])
            return dict(zip(ranks, group, strict=True))

        self.process.created += 1
        return failures.agree(self, None, combine)[self.rank]

    def Get_failed(self) -> list[int]:
        self.process.order(self.process.clock)
        return sorted(self.shared.failed)

    def Ack_failed(self) -> None:
        self.process.order(self.process.clock)
        self.acknowledged = set(self.shared.failed)

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
                seconds=self.seconds,
            )
        return self._platform

    def seconds(self, rounds: Iterable[Round]) -> float:
        """Return the seconds of a schedule; of many rounds some are extrapolated."""
        from dml.sim.evaluate import evaluate  # with numba, which is slow to import

        world = self.process.world
        ranks = np.array([peer.process.rank for peer in self.peers])
        placed = (
            entry._replace(source=ranks[entry.source], dest=ranks[entry.dest])
            for entry in rounds
        )
        most, size = MOST_MESSAGES, len(world.processes)
        clocks, _ = evaluate(placed, world.network, size, max_messages=most)
        return float(clocks[ranks].max())

    def hosts(self) -> list[int]:
        """Return the host of every rank; the list is shared by all ranks."""
        if not self.shared.hosts:
            hosts = self.process.world.hosts()
            names = [hosts[peer.process.rank] for peer in self.peers]
            order = {name: i for i, name in enumerate(dict.fromkeys(names))}
            self.shared.hosts = [order[name] for name in names]
        return self.shared.hosts

    def shared_window(self, nbytes: int) -> VirtualWindow:
        if self.shared.last_host is None:
            self.shared.last_host = max(self.hosts())
        if self.shared.last_host:  # on all ranks, so that no rank waits
            raise BadInput(
                f"rank {self.rank}: expected ranks on one host for a shared window, "
                f"got {self.shared.last_host + 1} hosts; call it on Split_type(SHARED)"
            )

        def combine(sizes: list[int]) -> list[np.ndarray]:
            return [_aligned(size) for size in sizes]

        self.process.created += 1
        return VirtualWindow(self, run_collective(self, "Window", nbytes, combine))

    def Wtime(self) -> float:
        return self.process.clock

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
        self.process.clock += self.gamma * inoutbuf.nbytes


def _aligned(nbytes: int) -> np.ndarray:
    """Return zeros aligned to a cache line, like a real window."""
    memory = np.zeros(nbytes + LINE, np.uint8)
    start = -memory.__array_interface__["data"][0] % LINE
    return memory[start : start + nbytes]


def check_equal(values: Sequence[tuple[np.ndarray, np.ufunc]]) -> None:
    """Raise BadInput unless all ranks pass one length, dtype and operation."""
    kinds = [(len(vector), vector.dtype, ufunc) for vector, ufunc in values]
    for rank, kind in enumerate(kinds):
        if kind != kinds[0]:
            first, other = (
                f"{length} x {dtype}, {op.__name__}"
                for length, dtype, op in (kinds[0], kind)
            )
            raise BadInput(
                f"expected equal arguments of Allreduce on all ranks, got {first} "
                f"on rank 0 and {other} on rank {rank}; pass equal ones"
            )
