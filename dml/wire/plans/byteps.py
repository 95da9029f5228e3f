"""The schedule of BytePS: sender, receiver and piece of every message.

Pure arithmetic. `wire.collectives.byteps` follows the schedule and has its picture.
"""

from collections.abc import Iterator
from typing import NamedTuple

NO_RANK = -1  # destination or source of no message


def byteps_pieces(
    workers: int, spare: int, nbytes: int, segment: int
) -> tuple[int, int]:
    """Return the number of equal pieces of a buffer, and the number of stages.

    Of (n² + kn - 2k)m pieces, a spare host serves 2(n-1)m, one in each stage, and a
    worker (n-k)m; m is the least number with no piece longer than a segment.

    Args:
      workers: Number of workers n.
      spare: Number of spare hosts k.
      nbytes: Size of the buffer.
      segment: Greatest size of a piece in bytes.
    """
    unit = workers * workers + spare * workers - 2 * spare
    repeats = max(1, -(-nbytes // (unit * max(1, segment))))
    return unit * repeats, 2 * (workers - 1) * repeats


class Slot(NamedTuple):
    """One exchange: a piece is sent to dest while another is received from source."""

    dest: int  # or NO_RANK
    sent: int  # number of the piece
    source: int  # or NO_RANK
    received: int  # number of the piece


class Plan(NamedTuple):
    """The messages of every slot of every stage.

    In slot r of a stage, spare host j receives a piece from worker r+j, and sends a
    piece that it reduced in the previous stage to worker r+j+c. The workers that do not
    send to a spare host send to the worker c ranks further, which does not receive from
    one. In the first half of the stages c takes all values while pieces are pushed to
    workers; in the second half, again while their sums are pulled.
    """

    workers: int
    spare: int
    stages: int
    parts: tuple[slice, ...]  # the words of each piece

    @property
    def share(self) -> int:
        """Number of pieces that a worker serves."""
        return (self.workers - self.spare) * self.repeats

    @property
    def repeats(self) -> int:
        """Factor m in the numbers of pieces and stages."""
        return self.stages // (2 * (self.workers - 1))

    def first_piece(self, server: int) -> int:
        """Return the first piece of a server; spare hosts serve the last pieces."""
        if server < self.workers:
            return server * self.share
        return self.workers * self.share + (server - self.workers) * self.stages

    def distance(self, stage: int) -> int:
        """Return c, the distance in ranks over which workers send in this stage."""
        return 1 + stage // self.repeats % (self.workers - 1)

    def message(self, rank: int, stage: int, r: int) -> tuple[int, int]:
        """Return the destination and the piece that a worker sends in slot r."""
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
