"""Blocks of numbers that pass from rank to rank, each with its number."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dml.types import CountedComm
from dml.wire.comm.tags import Tag

NOTHING = np.empty(0, np.float32)
Stops = Iterable[tuple[int, int]]  # blocks, and the ranks they come from or go to


class Parcels:
    """The sends in progress. A block without memory is an empty message: a signal."""

    def __init__(self, comm: CountedComm, parts: Mapping[int, np.ndarray]):
        self.comm, self.parts = comm, parts
        self.under_way: dict[int, Any] = {}

    def take(self, stops: Stops) -> None:
        """Receive blocks from their ranks."""
        for block, source in stops:
            if block in self.under_way:  # its memory is read until the send ends
                self.under_way.pop(block).Wait()
            part = self.parts.get(block, NOTHING)
            self.comm.Recv(part, source, Tag.BLOCK + block)

    def give(self, stops: Stops) -> None:
        """Begin to send blocks to their next ranks."""
        for block, dest in stops:
            part = self.parts.get(block, NOTHING)
            self.under_way[block] = self.comm.Isend(part, dest, Tag.BLOCK + block)

    def settle(self) -> None:
        """Return when all sends have ended."""
        while self.under_way:
            self.under_way.popitem()[1].Wait()
