"""Exchanges in segments: while one segment is reduced, the next one is received.

received   |--0--|--1--|--2--|
reduced          |-0-|  |-1-|  |-2-|        time →
"""

from collections.abc import Callable

import numpy as np

from dml.types import Comm, Op
from dml.wire.plans.topology import SEGMENT, Fold, segments


def copied(
    buffer: np.ndarray, result: np.ndarray | None, own: slice = slice(0)
) -> np.ndarray:
    """Return the memory that the second half of an all-reduce copies between ranks.

    Args:
      buffer: The buffer, with the sum of this rank's part.
      result: Array of a narrower type for the sums; None: they remain in the buffer.
      own: This rank's part, which is rounded into the result.
    """
    if result is None:
        return buffer
    result[own] = buffer[own]
    return result.view(f"u{result.itemsize}")  # MPI has no type for every 16 bits


class SegmentedExchange:
    """Sends of a collective, and receives with reduction; owns the receive buffers.

    Args:
      comm: The communicator.
      buffer: Buffer of the collective; its length and dtype size the receive buffers.
      op: The reduction.
      tag: Tag of all messages.
      segment: Size of a segment in bytes. A shorter part is one message.
    """

    def __init__(
        self, comm: Comm, buffer: np.ndarray, op: Op, tag: int, segment: int = SEGMENT
    ):
        self.comm, self.op, self.tag = comm, op, tag
        self.step = max(1, segment // buffer.itemsize)  # elements of a segment
        longest = min(self.step, len(buffer))
        self.received = np.empty_like(buffer[:longest])
        self.buffers = [self.received]  # a second one if there are several segments
        if len(buffer) > longest:
            self.buffers.append(np.empty_like(self.received))

    def exchange(
        self,
        outgoing: np.ndarray,
        dest: int,
        target: np.ndarray,
        source: int,
        received_first: bool = False,
    ) -> None:
        """Send `outgoing`; receive as many elements as `target` has, and reduce them.

        Args:
          outgoing: Array to send.
          dest: Rank to send to.
          target: Array that is set to op(target, received elements).
          source: Rank to receive from.
          received_first: Compute op(received, target) instead.
        """
        length = len(target)
        if length > self.step or len(outgoing) > self.step:
            return self._by_segments(outgoing, dest, target, source, received_first)
        if length != len(self.received):
            self.received = self.buffers[0][:length]
        comm, tag = self.comm, self.tag
        comm.Sendrecv(outgoing, dest, tag, self.received, source, tag)
        self._reduce(self.received, target, received_first)

    def send(self, outgoing: np.ndarray, dest: int) -> None:
        """Send to a rank that calls `receive`."""
        for part in segments(len(outgoing), self.step):
            self.comm.Send(outgoing[part], dest, self.tag)

    def receive(self, target: np.ndarray, source: int) -> None:
        """Receive as many elements as `target` has, and reduce them into `target`."""
        self._by_segments(None, 0, target, source)

    def folded(
        self,
        buffer: np.ndarray,
        folding: Fold,
        reduce: Callable[[int], None],
        result: np.ndarray | None = None,
    ) -> None:
        """Call reduce(place) on the ranks with a place of the folding.

        The odd rank of a pair sends its buffer to the even one, which adds it before
        the call, and receives the result: the buffer, or `result`.
        """
        final = copied(buffer, result)
        rank, comm = self.comm.rank, self.comm
        place = folding.place(rank)
        if place < 0:
            self.send(buffer, rank - 1)
            comm.Recv(final, rank - 1, self.tag)
            return
        if place < folding.extra:
            self.receive(buffer, rank + 1)
        reduce(place)
        if place < folding.extra:
            comm.Send(final, rank + 1, self.tag)

    def _reduce(
        self, received: np.ndarray, target: np.ndarray, received_first: bool
    ) -> None:
        if received_first:
            self.comm.Reduce_local(target, received, self.op, target)
        else:
            self.comm.Reduce_local(received, target, self.op)

    def _by_segments(
        self,
        outgoing,
        dest: int,
        target: np.ndarray,
        source: int,
        received_first: bool = False,
    ) -> None:
        """Exchange segment by segment; `outgoing` None sends nothing."""
        comm, tag = self.comm, self.tag
        receives = list(segments(len(target), self.step))
        sends = [] if outgoing is None else list(segments(len(outgoing), self.step))

        def post(k: int) -> list:
            """Start the receive and the send of segment k."""
            requests = []
            if k < len(receives):
                part = receives[k]
                received = self.buffers[k % 2][: part.stop - part.start]
                requests.append(comm.Irecv(received, source, tag))
            if k < len(sends):
                requests.append(comm.Isend(outgoing[sends[k]], dest, tag))
            return requests

        requests = post(0)
        for k in range(max(len(receives), len(sends))):
            following = post(k + 1)
            # `outgoing` may be `target`: a segment is sent before it is changed
            for request in requests:
                request.Wait()
            if k < len(receives):
                part = receives[k]
                received = self.buffers[k % 2][: part.stop - part.start]
                self._reduce(received, target[part], received_first)
            requests = following
