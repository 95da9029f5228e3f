"""Double binary tree all-reduce (Sanders 2009): two trees, half the buffer each."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dml.types import Comm, Op, Round
from dml.wire.collectives.segments import SegmentedExchange
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.costs.allreduce import Job, Rates, reduce_seconds, send_seconds
from dml.wire.plans import double_tree as plan
from dml.wire.plans.broadcasts import Broadcast, Sends
from dml.wire.plans.schedules import step

PIECE = 1 << 16  # bytes


def double_tree_allreduce(
    comm: Comm, buffer: np.ndarray, op: Op = np.add, segment: int = PIECE
) -> None:
    """Reduce in place over all ranks.

               0                   7        a reduction up both trees,
               │                   │        piece by piece; then a broadcast
               4                   3        down both trees, the same rounds
           2       6           5       1    in reverse
         1   3   5   7       6   4   2   0
         first half          second half

    A rank is inner in one tree and a leaf in the other, so that it sends n elements in
    each direction; pieces follow each other every second round. A rank adds the sums of
    its children to its own in the order in which the schedule sends them.
    For m pieces of each half and depth d ≤ ⌈lg p⌉ + 1: about 2(2m + 2d) rounds,
    2(p-1)n elements over all ranks: about 4(m + d)(α + n/(2m)·β) + 2(m + d)n/(2m)·γ,
    close to 2nβ + nγ for many pieces.

    Args:
      comm: The ranks.
      buffer: Buffer to reduce.
      op: The reduction.
      segment: Bytes of a piece.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    if comm.size == 1:
        return
    parts = plan.pieces(len(buffer), max(1, segment // buffer.itemsize))
    segmented = SegmentedExchange(comm, buffer, op, Tag.DOUBLE_TREE, segment)
    turns = list(Turns.build(comm.rank, comm.size).moves(len(parts[0])))
    nothing, tag = buffer[:0], Tag.DOUBLE_TREE

    def memory(move: Piece | None) -> np.ndarray:
        return buffer[parts[move.tree][move.piece]] if move else nothing

    for down, up in reversed(turns):  # in a reduction pieces go from child to parent
        if up and down:
            segmented.exchange(memory(up), up.peer, memory(down), down.peer)
        elif up:
            segmented.send(memory(up), up.peer)
        elif down:
            segmented.receive(memory(down), down.peer)
    for down, up in turns:
        if up and down:
            comm.Sendrecv(memory(down), down.peer, tag, memory(up), up.peer, tag)
        elif down:
            comm.Send(memory(down), down.peer, tag)
        elif up:
            comm.Recv(memory(up), up.peer, tag)


class Piece(NamedTuple):
    """A piece that a rank sends to a child, or receives from a parent."""

    peer: int
    tree: int
    piece: int


class Turns(NamedTuple):
    """The edges of one rank by colour: (peer, tree, first round), or None."""

    down: tuple[tuple[int, int, int] | None, ...]
    up: tuple[tuple[int, int, int] | None, ...]
    last: int  # first round of the edge that starts last

    @staticmethod
    def build(rank: int, size: int) -> "Turns":
        found = plan.edges(size)
        down: list = [None, None]
        up: list = [None, None]
        for turns, own, peer in (
            (down, found.parent, found.child),
            (up, found.child, found.parent),
        ):
            for edge in np.flatnonzero(own == rank).tolist():
                start = int(found.start[edge])
                turns[start % 2] = int(peer[edge]), int(found.tree[edge]), start
        return Turns(tuple(down), tuple(up), int(found.start.max()))

    def moves(self, count: int) -> Iterator[tuple[Piece | None, Piece | None]]:
        """Yield the pieces to a child and from a parent, for each round of a broadcast.

        count: Number of pieces in each tree.
        """
        for x in range(self.last + 2 * count - 1):
            found: list[Piece | None] = []
            for turn in (self.down[x % 2], self.up[x % 2]):
                piece = -1 if turn is None else (x - turn[2]) // 2
                known = turn is not None and 0 <= piece < count
                found.append(Piece(turn[0], turn[1], piece) if turn and known else None)
            yield found[0], found[1]


def double_tree(
    size: int, length: int, itemsize: int = 4, segment: int = PIECE
) -> Iterator[Round]:
    """Yield the rounds of `double_tree_allreduce`."""
    found, segment = plan.edges(size), step(itemsize, segment)
    parts = plan.pieces(length, segment // itemsize)
    nbytes = np.array(
        [[(part.stop - part.start) * itemsize for part in half] for half in parts]
    )
    broadcast = []
    for x in range(plan.rounds(size, len(parts[0]))):
        piece = (x - found.start) // 2
        used = ((x - found.start) % 2 == 0) & (piece >= 0) & (piece < len(parts[0]))
        sizes = nbytes[found.tree[used], piece[used]]
        if used.any():
            broadcast.append(Round(found.parent[used], found.child[used], sizes, False))
    for entry in reversed(broadcast):
        yield Round(entry.dest, entry.source, entry.nbytes, True, segment)
    yield from broadcast


def double_tree_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of all rounds, an upper bound, in tests by up to 2 %.

    There is no closed form: a rank that neither sends nor receives in some rounds goes
    ahead of the others, so that the exact time is a longest path, which `sim.evaluate`
    finds.
    """
    parts, _ = plan.pieces(job.length, max(1, min(job.segment, PIECE) // job.itemsize))
    longest = max(part.stop - part.start for part in parts)
    each = reduce_seconds(job, rates, longest) + send_seconds(job, rates, longest)
    return plan.rounds(job.size, len(parts)) * each


@lru_cache(maxsize=64)
def broadcast_plan(size: int, pieces: int) -> tuple[Sends, ...]:
    """Return the rounds of a broadcast from rank 0 to two trees of the other ranks.

    The root sends pieces of both halves of the buffer in turn: for m pieces of each
    half and depth d ≤ ⌈lg p⌉ + 1 about 2(m + d) rounds, (p-1)n elements over all ranks.
    """
    if size == 1:
        return ()
    found, count, rounds = plan.rooted_edges(size), pieces // 2, []
    for x in range(int(found.start.max()) + 2 * count - 1):
        piece = (x - found.start) // 2
        used = ((x - found.start) % 2 == 0) & (piece >= 0) & (piece < count)
        first = found.tree[used] * count + piece[used]
        if used.any():
            ends = found.parent[used], found.child[used]
            rounds.append(Sends(*ends, first, np.ones_like(first)))
    return tuple(rounds)


def even_pieces(size: int, length: int, most: int) -> int:
    """Return the number of pieces of both halves."""
    return 2 * max(1, -(-length // (2 * most)))


DOUBLE_TREE = Broadcast(broadcast_plan, even_pieces)


def broadcast_rounds(job: Job) -> tuple[int, int]:
    """Return the number of rounds of a broadcast, and the elements of a piece."""
    most = max(1, min(job.segment, PIECE) // job.itemsize)
    pieces = even_pieces(job.size, job.length, most)
    start = plan.rooted_edges(job.size).start
    return int(start.max()) + pieces - 1, -(-job.length // pieces)


def broadcast_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of all rounds of a broadcast, an upper bound."""
    rounds, longest = broadcast_rounds(job)
    return rounds * send_seconds(job, rates, longest)


def reduction_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of all rounds of a reduction, an upper bound."""
    rounds, longest = broadcast_rounds(job)
    return rounds * reduce_seconds(job, rates, longest)
