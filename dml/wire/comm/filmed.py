"""A communicator that records what messages and a buffer contain, for the player.

Rank r fills a buffer of 64-bit words with 1 << r and reduces it by a bitwise or, so
that each word has a bit for each rank whose elements it contains.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from dml.types import Comm, Message, Op
from dml.wire.comm.traced import Traced

Snapshot = tuple[int, float, list[int]]  # rank, time, contributions by word


class Tape:
    """Record of all ranks of a run; virtual ranks share one process."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.sent: dict[tuple[int, float, int], list[int]] = defaultdict(list)

    def contents(self, messages: list[Message]) -> list[int]:
        """Return the contributions of each message, in the order of its sends."""
        waiting = {key: list(values) for key, values in self.sent.items()}
        found = []
        for one in messages:
            values = waiting.get((one.source, one.sent, one.tag))
            found.append(values.pop(0) if values else 0)
        return found


class Filmed(Traced):
    """A traced communicator that also records contents; see `Tape`."""

    def __init__(
        self,
        comm: Comm,
        origin: "Filmed | None" = None,
        color: int = 0,
        tape: Tape | None = None,
        buffer: np.ndarray | None = None,
    ):
        super().__init__(comm, origin, color)
        self.tape: Tape = origin.tape if origin else tape or Tape()
        self.world: int = origin.world if origin else self.rank
        self.buffer: np.ndarray | None = origin.buffer if origin else buffer
        self.last: list[int] = []
        reduce: Callable[..., None] = self.Reduce_local

        def reduce_local(inbuf: Any, inout: Any, op: Op, out: Any = None) -> None:
            reduce(inbuf, inout, op, out)
            self.snapshot()

        self.Reduce_local = reduce_local

    def child(self, comm: Comm, color: int) -> Any:
        self.children += 1
        return Filmed(comm, self, color) if comm else comm

    def snapshot(self) -> None:
        """Record the contents of the buffer, if they have changed."""
        if self.buffer is None:
            return
        counts = np.bitwise_count(self.buffer).tolist()
        if counts != self.last:
            self.last = counts
            self.tape.snapshots.append((self.world, self.Wtime(), counts))

    def add_send(self, buffer: Any, dest: int, tag: int, time: float) -> None:
        super().add_send(buffer, dest, tag, time)
        words = np.asarray(buffer).reshape(-1)
        if words.dtype == np.uint64 and len(words):
            count = int(np.bitwise_or.reduce(words)).bit_count()
            self.tape.sent[self.world, time, tag].append(count)

    def set_received(self, entry: list, status: Any) -> None:
        super().set_received(entry, status)
        self.snapshot()
