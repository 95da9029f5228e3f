"""BytePS's schedule: who sends which piece to whom, when; pure arithmetic.

`wire/collectives/byteps.py` follows it, and shows it.
"""

from collections.abc import Iterator
from typing import NamedTuple

NOBODY = -1


def byteps_cut(workers: int, spare: int, nbytes: int, segment: int) -> tuple[int, int]:
    """Say into how many equal pieces BytePS cuts a buffer, and how many stages it has.

    A spare host serves 2(n-1)m of the (n² + kn - 2k)m pieces, one a stage, a worker
    (n-k)m; m is the least that leaves no piece longer than a segment.
    """
    unit = workers * workers + spare * workers - 2 * spare
    repeats = max(1, -(-nbytes // (unit * max(1, segment))))
    return unit * repeats, 2 * (workers - 1) * repeats


class Slot(NamedTuple):
    """One exchange: piece `give` goes to dest while `take` comes from source."""

    dest: int  # or NOBODY
    give: int
    source: int  # or NOBODY
    take: int


class Plan(NamedTuple):
    """Who sends which piece to whom in every slot of every stage; pure arithmetic.

    In slot r of a stage, spare host j gets a piece from worker r+j and sends one, which
    it added up in the stage before, to worker r+j+c. That leaves as many workers with
    nothing to send as with nothing to receive, the latter c further: so they send to
    those. c takes all values in the first half of the stages, when pieces are pushed
    to workers, and again in the second, when their sums are pulled.
    """

    workers: int
    spare: int
    stages: int
    parts: tuple[slice, ...]  # of the buffer, a piece each

    @property
    def share(self) -> int:
        """Pieces that a worker serves."""
        return (self.workers - self.spare) * self.repeats

    @property
    def repeats(self) -> int:
        return self.stages // (2 * (self.workers - 1))

    def first(self, server: int) -> int:
        """The first piece that a rank serves: those of spare hosts come last."""
        if server < self.workers:
            return server * self.share
        return self.workers * self.share + (server - self.workers) * self.stages

    def distance(self, stage: int) -> int:
        """c: how far workers send in this stage."""
        return 1 + stage // self.repeats % (self.workers - 1)

    def sent(self, rank: int, stage: int, r: int) -> tuple[int, int]:
        """To whom a worker sends in slot r, and which piece."""
        host = (rank - r) % self.workers
        if host < self.spare:
            return self.workers + host, self.first(self.workers + host) + stage
        dest = (rank + self.distance(stage)) % self.workers
        server = dest if stage < self.stages // 2 else rank
        nth = stage % self.repeats * (self.workers - self.spare) + host - self.spare
        return dest, self.first(server) + nth

    def working(self, rank: int, stage: int) -> Iterator[Slot]:
        """A worker's slots of a stage."""
        behind = (rank - self.distance(stage)) % self.workers
        for r in range(self.workers):
            dest, give, source, take = NOBODY, 0, NOBODY, 0
            if stage < self.stages:
                dest, give = self.sent(rank, stage, r)
            host = (behind - r) % self.workers
            if host >= self.spare and stage < self.stages:
                source, take = behind, self.sent(behind, stage, r)[1]
            elif host < self.spare and stage:
                source = self.workers + host
                take = self.first(source) + stage - 1
            yield Slot(dest, give, source, take)

    def serving(self, rank: int, stage: int) -> Iterator[Slot]:
        """A spare host's slots of a stage."""
        n, c, piece = self.workers, self.distance(stage), self.first(rank) + stage
        for r in range(n):
            source = (r + rank - n) % n
            dest = (source + c) % n if stage else NOBODY
            source = source if stage < self.stages else NOBODY
            yield Slot(dest, piece - 1, source, piece)
