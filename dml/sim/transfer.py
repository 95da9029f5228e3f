"""A message of the virtual world: how it waits, travels and lands in a buffer."""

from typing import Any

import numpy as np

from dml.sim.world import Process
from dml.types import BadInput


class VirtualRequest:
    """A send or receive under way; `done` is when its buffer is free, -1 before."""

    __slots__ = ("buffer", "done", "name", "peer", "posted", "process", "tag")

    def __init__(self, process: Process, name: str, buffer: Any, peer: int, tag: int):
        self.process, self.name, self.buffer = process, name, buffer
        self.peer, self.tag, self.posted, self.done = peer, tag, process.clock, -1.0

    def finish(self, done: float) -> None:
        self.done = done
        if self.process.waits is self:
            self.process.wake()
        else:
            self.process.world.progress()

    def describe(self) -> str:
        tag = getattr(self.tag, "name", self.tag)
        return f"{self.name}={self.peer}, tag={tag}, {self.buffer.nbytes} bytes)"

    def Wait(self, status: Any = None) -> bool:
        process = self.process
        if self.done < 0:
            process.wait(self)
        if self.done > process.clock:
            process.clock = self.done
        return True

    def Test(self, status: Any = None) -> bool:
        """Say whether it is done by now; if not, let the other ranks run first."""
        process = self.process
        if not 0 <= self.done <= process.clock:
            process.polls = self
            process.pause()
            process.polls = None
        return 0 <= self.done <= process.clock


def arrive(receiver: Process, start: float, took: float, request: Any) -> float:
    """Take a message through the receiver's in port; return when it has arrived.

    A request is that of a sender that has waited for its receive: its own kind hold
    the out port one after another, from when they are met.
    """
    if start < receiver.in_free:
        start = receiver.in_free
    if request is not None and start < request.process.met_free:
        start = request.process.met_free
    done = start + took
    receiver.in_free = done
    if request is not None:
        sender = request.process
        sender.met_free = done
        sender.out_free = max(sender.out_free, done)
        request.finish(done)
    return done


def fill(into: np.ndarray, data: np.ndarray, rank: int, source: int, tag: int) -> None:
    """Copy a message into a receive buffer, by bytes as MPI does."""
    if into.dtype is data.dtype and into.shape == data.shape:
        into[...] = data
        return
    if data.nbytes > into.nbytes:
        raise BadInput(
            f"rank {rank}: message truncated: {data.nbytes} bytes from rank {source} "
            f"({tag=}) do not fit into a buffer of {into.nbytes}; pass --check to name "
            "ranks whose lengths or dtypes differ"
        )
    bytes_of(into)[: data.nbytes] = bytes_of(data)


def bytes_of(buffer: np.ndarray) -> np.ndarray:
    return buffer.reshape(-1).view(np.uint8)
