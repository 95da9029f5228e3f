"""Transfers of numbered blocks between ranks, as in training by rotation."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dml.types import CountedComm
from dml.wire.comm.tags import Tag

EMPTY = np.empty(0, np.float32)
Stops = Iterable[tuple[int, int]]  # (block, its source or destination rank)


class BlockTransfers:
    """Sends and receives of blocks; owns the sends in progress.

    Args:
      comm: The ranks.
      parts: Memory of blocks by number. A block that is not in `parts`, such as one in
        shared memory, is transferred as an empty message: a signal that the receiver
        may use it.
    """

    def __init__(self, comm: CountedComm, parts: Mapping[int, np.ndarray]):
        self.comm, self.parts = comm, parts
        self.under_way: dict[int, Any] = {}

    def receive(self, stops: Stops) -> None:
        """Receive each block from its source."""
        for block, source in stops:
            if block in self.under_way:  # the send in progress reads its memory
                self.under_way.pop(block).Wait()
            part = self.parts.get(block, EMPTY)
            self.comm.Recv(part, source, Tag.BLOCK + block)

    def send(self, stops: Stops) -> None:
        """Start to send each block to its destination."""
        for block, dest in stops:
            part = self.parts.get(block, EMPTY)
            self.under_way[block] = self.comm.Isend(part, dest, Tag.BLOCK + block)

    def wait(self) -> None:
        """Wait for the end of all sends."""
        while self.under_way:
            self.under_way.popitem()[1].Wait()
