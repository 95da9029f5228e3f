"""Transfers of numbered blocks between ranks, as in training by rotation."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dml.types import CountedComm
from dml.wire.comm.tags import Tag

EMPTY = np.empty(0, np.float32)
Stops = Iterable[tuple[int, int]]  # (block, rank that it comes from or goes to)


class BlockTransfers:
    """Sends and receives blocks; owns the sends in progress.

    parts: memory of blocks by number. A block that is not in `parts` is transferred as
        an empty message: a signal that the receiver may use it.
    """

    def __init__(self, comm: CountedComm, parts: Mapping[int, np.ndarray]):
        self.comm, self.parts = comm, parts
        self.under_way: dict[int, Any] = {}

    def receive(self, stops: Stops) -> None:
        """Receive each block from its rank."""
        for block, source in stops:
            if block in self.under_way:  # its memory is read until the send ends
                self.under_way.pop(block).Wait()
            part = self.parts.get(block, EMPTY)
            self.comm.Recv(part, source, Tag.BLOCK + block)

    def send(self, stops: Stops) -> None:
        """Start to send each block to its rank."""
        for block, dest in stops:
            part = self.parts.get(block, EMPTY)
            self.under_way[block] = self.comm.Isend(part, dest, Tag.BLOCK + block)

    def wait(self) -> None:
        """Wait for the end of all sends."""
        while self.under_way:
            self.under_way.popitem()[1].Wait()
