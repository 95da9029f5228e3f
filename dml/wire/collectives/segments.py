"""Exchanges in segments: while one segment is reduced, the next one is received.

received   |--0--|--1--|--2--|
reduced          |-0-|  |-1-|  |-2-|        time →
"""

import numpy as np

from dml.types import Comm, Op
from dml.wire.plans.topology import SEGMENT, segments


class SegmentedExchange:
    """Sends, and receives that reduce, of one collective; owns the receive buffers.

    Args:
      comm: The communicator.
      buffer: The buffer that the collective reduces, for its length and dtype.
      op: The reduction.
      tag: Tag of all messages.
      segment: Bytes of a segment. Shorter parts are sent as one message.
    """

    def __init__(
        self, comm: Comm, buffer: np.ndarray, op: Op, tag: int, segment: int = SEGMENT
    ):
        self.comm, self.op, self.tag = comm, op, tag
        self.step = max(1, segment // buffer.itemsize)
        longest = min(self.step, len(buffer))
        self.received = np.empty_like(buffer[:longest])
        self.buffers = [self.received]  # two where there are several segments
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
        """Send `outgoing` to dest; receive as many words as `target`, and reduce.

        Args:
          outgoing: The words to send.
          dest: Rank to send to.
          target: The words that become op(target, received).
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
        """Receive as many words as `target`, and reduce them into it."""
        self._by_segments(None, 0, target, source)

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
        comm, tag = self.comm, self.tag
        receives = list(segments(len(target), self.step))
        sends = [] if outgoing is None else list(segments(len(outgoing), self.step))

        def post(k: int) -> list:
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
