"""The schedule of BytePS: sender, receiver and piece of every message.

Pure arithmetic. `wire.collectives.byteps` sends the messages, and has a picture.
"""

from collections.abc import Iterator
from typing import NamedTuple

NO_RANK = -1  # destination or source where no message is sent or received


def byteps_pieces(
    workers: int, spare: int, nbytes: int, segment: int
) -> tuple[int, int]:
    """Return the number of equal pieces of a buffer, and the number of stages.

    To serve a piece is to receive it from all workers, add up, and send the sum. Of
    (n² + kn - 2k)m pieces, a spare host serves 2(n-1)m, one in each stage, and a worker
    (n-k)m; m is the least number for which no piece is longer than a segment.

    Args:
      workers: Number of workers n.
      spare: Number of spare hosts k.
      nbytes: Size of the buffer in bytes.
      segment: Largest size of a piece in bytes.
    """
    unit = workers * workers + spare * workers - 2 * spare
    repeats = max(1, -(-nbytes // (unit * max(1, segment))))
    return unit * repeats, 2 * (workers - 1) * repeats


class Slot(NamedTuple):
    """One exchange: a piece is sent to dest while another is received from source."""

    dest: int  # rank, or NO_RANK
    sent: int  # index of the sent piece
    source: int  # rank, or NO_RANK
    received: int  # index of the received piece


class BytePSPlan(NamedTuple):
    """The messages of every slot of every stage.

    In slot r of a stage, spare host j receives a piece from worker r+j, and sends a
    piece that it reduced in the previous stage to worker r+j+c. The other workers send
    to the worker c ranks further, which receives from no spare host in this slot. In
    the first half of the stages pieces are pushed to workers while c takes all values
    1 … n-1; in the second half their sums are pulled while c takes all values again.
    """

    workers: int  # number n of workers
    spare: int  # number k of spare hosts
    stages: int  # number of stages without the last, which only sends sums
    parts: tuple[slice, ...]  # slice of the buffer of each piece

    @property
    def share(self) -> int:
        """Number of pieces that a worker serves."""
        return (self.workers - self.spare) * self.repeats

    @property
    def repeats(self) -> int:
        """Factor m in the numbers of pieces and stages."""
        return self.stages // (2 * (self.workers - 1))

    def first_piece(self, server: int) -> int:
        """Return the index of the first piece that a rank serves."""
        if server < self.workers:
            return server * self.share
        return self.workers * self.share + (server - self.workers) * self.stages

    def distance(self, stage: int) -> int:
        """Return c, the distance in ranks over which workers send in this stage."""
        return 1 + stage // self.repeats % (self.workers - 1)

    def message(self, rank: int, stage: int, r: int) -> tuple[int, int]:
        """Return the destination and the index of the piece that a worker sends."""
        host = (rank - r) % self.workers
        if host < self.spare:
            return self.workers + host, self.first_piece(self.workers + host) + stage
        dest = (rank + self.distance(stage)) % self.workers
        server = dest if stage < self.stages // 2 else rank
        nth = stage % self.repeats * (self.workers - self.spare) + host - self.spare
        return dest, self.first_piece(server) + nth

    def worker_slots(self, rank: int, stage: int) -> Iterator[Slot]:
        """Yield the slots of a worker in a stage."""
        behind = (rank - self.distance(stage)) % self.workers
        for r in range(self.workers):
            dest, sent, source, received = NO_RANK, 0, NO_RANK, 0
            if stage < self.stages:
                dest, sent = self.message(rank, stage, r)
            host = (behind - r) % self.workers
            if host >= self.spare and stage < self.stages:
                source, received = behind, self.message(behind, stage, r)[1]
            elif host < self.spare and stage:
                source = self.workers + host
                received = self.first_piece(source) + stage - 1
            yield Slot(dest, sent, source, received)

    def server_slots(self, rank: int, stage: int) -> Iterator[Slot]:
        """Yield the slots of a spare host in a stage."""
        n, c, piece = self.workers, self.distance(stage), self.first_piece(rank) + stage
        for r in range(n):
            source = (r + rank - n) % n
            dest = (source + c) % n if stage else NO_RANK
            source = source if stage < self.stages else NO_RANK
            yield Slot(dest, piece - 1, source, piece)
