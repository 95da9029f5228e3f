"""What every collective by hand does to a buffer: send it, or receive and reduce.

A long buffer goes in segments: while one is added, the next is under way.

    received   |--0--|--1--|--2--|
    added            |-0-|  |-1-|  |-2-|        time →
"""

import numpy as np

from dml.types import Comm, Op
from dml.wire.plans.topology import SEGMENT, segments


class Lane:
    """Exchanges of one collective over one communicator; owns the receive buffers."""

    def __init__(
        self, comm: Comm, buffer: np.ndarray, op: Op, tag: int, segment: int = SEGMENT
    ):
        self.comm, self.op, self.tag = comm, op, tag
        self.step = max(1, segment // buffer.itemsize)
        longest = min(self.step, len(buffer))
        self.received = np.empty_like(buffer[:longest])
        self.spare = [self.received]  # two where there are segments
        if len(buffer) > longest:
            self.spare.append(np.empty_like(self.received))

    def exchange(
        self, give: np.ndarray, dest: int, mine: np.ndarray, source: int
    ) -> None:
        """Send `give` to dest; receive as much as `mine` and reduce it into that."""
        length = len(mine)
        if length > self.step or len(give) > self.step:
            return self._by_segments(give, dest, mine, source)
        if length != len(self.received):
            self.received = self.spare[0][:length]
        comm, tag = self.comm, self.tag
        comm.Sendrecv(give, dest, tag, self.received, source, tag)
        comm.Reduce_local(self.received, mine, self.op)

    def send(self, give: np.ndarray, dest: int) -> None:
        """Send to a rank that calls `receive`."""
        for part in segments(len(give), self.step):
            self.comm.Send(give[part], dest, self.tag)

    def receive(self, mine: np.ndarray, source: int) -> None:
        """Receive as much as `mine` and reduce it into that."""
        self._by_segments(None, 0, mine, source)

    def _by_segments(self, give, dest: int, mine: np.ndarray, source: int) -> None:
        comm, tag = self.comm, self.tag
        ins = list(segments(len(mine), self.step))
        outs = [] if give is None else list(segments(len(give), self.step))

        def post(k: int) -> list:
            under_way = []
            if k < len(ins):
                part = ins[k]
                received = self.spare[k % 2][: part.stop - part.start]
                under_way.append(comm.Irecv(received, source, tag))
            if k < len(outs):
                under_way.append(comm.Isend(give[outs[k]], dest, tag))
            return under_way

        under_way = post(0)
        for k in range(max(len(ins), len(outs))):
            after = post(k + 1)
            # `give` may be `mine`: a segment must have left before it changes.
            for request in under_way:
                request.Wait()
            if k < len(ins):
                part = ins[k]
                received = self.spare[k % 2][: part.stop - part.start]
                comm.Reduce_local(received, mine[part], self.op)
            under_way = after
