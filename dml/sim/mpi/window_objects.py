"""What the ranks of a window share: the memory of each, and its lock."""

from collections import deque
from typing import Any

import numpy as np

from dml.sim.mpi.constants import CONSTANTS

EXCLUSIVE, SHARED_LOCK = CONSTANTS["LOCK_EXCLUSIVE"], CONSTANTS["LOCK_SHARED"]


class Lock:
    """The lock of one rank's memory: its holders, and the ranks that wait."""

    def __init__(self) -> None:
        self.holders: dict[int, int] = {}  # kind of lock, by rank
        self.waiting: deque[tuple[Any, int, int]] = deque()  # process, rank, kind

    def free_for(self, kind: int) -> bool:
        kinds = self.holders.values()
        return not self.holders or kind == SHARED_LOCK and EXCLUSIVE not in kinds

    def describe(self) -> str:
        return f"Win.Lock(), held by ranks {[*self.holders]}"

    def failure(self, comm: Any) -> str:
        return ""

    def take(self, process: Any, rank: int, kind: int, alpha: float) -> None:
        process.order(process.clock)
        if self.waiting or not self.free_for(kind):
            self.waiting.append((process, rank, kind))
            process.wait(self)
        else:
            self.holders[rank] = kind
        process.clock += alpha
        process.world.progress()

    def give(self, process: Any, rank: int) -> None:
        process.order(process.clock)
        del self.holders[rank]
        while self.waiting and self.free_for(self.waiting[0][2]):
            other, number, kind = self.waiting.popleft()
            self.holders[number] = kind
            other.clock = max(other.clock, process.clock)
            other.wake()
        process.world.progress()


class Memories:
    """State that all ranks of a window share."""

    def __init__(self, size: int):
        self.parts: list[np.ndarray] = [np.zeros(0, np.uint8)] * size
        self.units = [1] * size
        self.attached: list[list[np.ndarray]] = [[] for _ in range(size)]
        self.locks = [Lock() for _ in range(size)]


class WinObject:
    """The object of a window on one rank.

    Attributes:
      epochs: What the rank has opened: a fence, locks, or a start.
    """

    def __init__(self, comm: Any, memories: Memories, flavor: int, own: Any):
        self.comm, self.memories, self.flavor, self.own = comm, memories, flavor, own
        self.rank, self.size = comm.held.rank, comm.held.size
        self.name, self.info = "", dict[str, str]()
        self.errhandler: Any = None
        self.attributes: dict[int, Any] = {}
        self.started: list[int] = []  # ranks of Start
        self.posted: list[int] = []  # ranks of Post
        self.awaited: list[Any] = []  # requests of Post

    @property
    def process(self) -> Any:
        return self.comm.held.comm.process
