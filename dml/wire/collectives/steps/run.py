"""Messages of the collectives by windows; see `dml.wire.plans.windows`."""

import math
from collections.abc import Sequence

import numpy as np

from dml.types import BadInput, Comm, Op
from dml.wire.collectives.segments import SegmentedExchange, copied
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.plans.topology import SEGMENT, Fold, chunks
from dml.wire.plans.windows import Line, Pattern, lines_through, moves


def all_gather_by(pattern: Pattern, comm: Comm, buffer: np.ndarray) -> None:
    """Copy chunk r of the buffer of rank r to all ranks, for every r.

    If the pattern folds, the odd rank of a pair sends its chunk to the even one and
    receives all n elements at the end.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    rank, tag, folded = comm.rank, Tag.WINDOWS, pattern.fold(comm.size)
    parts = chunks(len(buffer), comm.size)
    place = folded.place(rank)
    if place < 0:
        comm.Send(buffer[parts[rank]], rank - 1, tag)
        comm.Recv(buffer, rank - 1, tag)
        return
    if place < folded.extra:
        comm.Recv(buffer[parts[rank + 1]], rank + 1, tag)
    gather(comm, buffer, pattern, folded, by_position(pattern, folded, parts))
    if place < folded.extra:
        comm.Send(buffer, rank + 1, tag)


def reduce_scatter_by(
    pattern: Pattern,
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    segment: int = SEGMENT,
) -> np.ndarray:
    """Reduce chunk r over all ranks into the buffer of rank r; return the chunk.

    The other chunks of the buffer are overwritten with partial sums. If the pattern
    folds, the odd rank of a pair sends all n elements to the even one and receives its
    chunk at the end.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    rank, tag, folded = comm.rank, Tag.WINDOWS, pattern.fold(comm.size)
    parts = chunks(len(buffer), comm.size)
    place = folded.place(rank)
    segmented = SegmentedExchange(comm, buffer, op, tag, segment)
    if place < 0:
        segmented.send(buffer, rank - 1)
        comm.Recv(buffer[parts[rank]], rank - 1, tag)
        return buffer[parts[rank]]
    if place < folded.extra:
        segmented.receive(buffer, rank + 1)
    scatter(segmented, buffer, pattern, folded, by_position(pattern, folded, parts))
    if place < folded.extra:
        comm.Send(buffer[parts[rank + 1]], rank + 1, tag)
    return buffer[parts[rank]]


def allreduce_by(
    pattern: Pattern,
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    segment: int = SEGMENT,
    result: np.ndarray | None = None,
) -> None:
    """Reduce in place over all ranks: a reduce-scatter and an all-gather.

    Chunks have the order of the positions of the pattern. If the pattern folds, the odd
    rank of a pair sends all n elements to the even one and receives them at the end.
    With `result`, an array of a narrower type, sums are rounded and copied in its type.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    folding = pattern.fold(comm.size)
    segmented = SegmentedExchange(comm, buffer, op, Tag.WINDOWS, segment)
    parts = chunks(len(buffer), folding.power)

    def steps(place: int) -> None:
        scatter(segmented, buffer, pattern, folding, parts)
        own = parts[int(pattern.plan(folding.power).place[place])]
        gather(comm, copied(buffer, result, own), pattern, folding, parts)

    segmented.folded(buffer, folding, steps, result)


def allreduce_along(
    pattern: Pattern,
    comm: Comm,
    buffer: np.ndarray,
    op: Op,
    segment: int,
    sides: Sequence[int],
    result: np.ndarray | None = None,
) -> None:
    """Reduce in place over all ranks: along one dimension of a torus after another.

    Reduce-scatters along the lines of the last dimension, then of the one before, each
    of the chunk of the step before; then all-gathers in reverse. The pattern must not
    fold. Rank = its coordinates, the last one fastest.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    if math.prod(sides) != comm.size or min(sides) < 1:
        raise BadInput(
            f"expected sides with product {comm.size}, got {tuple(sides)}; "
            "pass () for a ring"
        )
    segmented = SegmentedExchange(comm, buffer, op, Tag.WINDOWS, segment)
    chunk, sums, scattered = buffer, copied(buffer, result), []
    for ranks in lines_through(comm.rank, sides):
        line, parts = Line(ranks), chunks(len(chunk), len(ranks))
        scatter(segmented, chunk, pattern, line, parts)
        scattered.append((sums, line, parts))
        place = line.place(comm.rank)
        own = parts[int(pattern.plan(line.power).place[place])]
        chunk, sums = chunk[own], sums[own]
    if result is not None:
        sums.view(result.dtype)[:] = chunk
    for sums, line, parts in reversed(scattered):
        gather(comm, sums, pattern, line, parts)


def by_position(pattern: Pattern, folded: Fold, parts: Sequence[slice]) -> list[slice]:
    """Return the parts by position on the circle; that of a pair has both chunks.

    Args:
      pattern: The all-gather.
      folded: The folding of the ranks.
      parts: The chunk of each rank.
    """
    ordered = [slice(0, 0)] * folded.power
    for place, position in enumerate(pattern.plan(folded.power).place.tolist()):
        rank = folded.rank(place)
        last = rank + (place < folded.extra)
        ordered[position] = slice(parts[rank].start, parts[last].stop)
    return ordered


def gather(
    comm: Comm,
    buffer: np.ndarray,
    pattern: Pattern,
    folded: Fold | Line,
    parts: Sequence[slice],
) -> None:
    """Copy the part of every place to all places.

    Args:
      comm: The ranks.
      buffer: The buffer.
      pattern: The all-gather.
      folded: The folding of the ranks.
      parts: Parts of the buffer by position on the circle.
    """
    for move in moves(pattern, folded.power, folded.place(comm.rank)):
        sent = window(parts, move.sent, move.width)
        received = window(parts, move.received, move.width)
        incoming = packed(buffer, received)
        comm.Sendrecv(
            packed(buffer, sent),
            folded.rank(move.dest),
            Tag.WINDOWS,
            incoming,
            folded.rank(move.source),
            Tag.WINDOWS,
        )
        unpack(incoming, buffer, received)


def scatter(
    segmented: SegmentedExchange,
    buffer: np.ndarray,
    pattern: Pattern,
    folded: Fold | Line,
    parts: Sequence[slice],
) -> None:
    """Reduce every part onto its place: the all-gather in reverse.

    Arguments are those of `gather`, except `segmented`, which sends and reduces.
    """
    place = folded.place(segmented.comm.rank)
    for move in reversed(moves(pattern, folded.power, place)):
        kept = window(parts, move.sent, move.width)
        target = packed(buffer, kept)
        segmented.exchange(
            packed(buffer, window(parts, move.received, move.width)),
            folded.rank(move.source),
            target,
            folded.rank(move.dest),
        )
        unpack(target, buffer, kept)


def window(parts: Sequence[slice], start: int, count: int) -> list[slice]:
    """Return the memory of adjacent chunks of a circle, as few slices as possible."""
    pieces: list[slice] = []
    for position in range(start, start + count):
        part = parts[position % len(parts)]
        if pieces and pieces[-1].stop == part.start:
            part = slice(pieces.pop().start, part.stop)
        pieces.append(part)
    return pieces


def packed(buffer: np.ndarray, pieces: Sequence[slice]) -> np.ndarray:
    """Return the pieces as one array: a view of a single piece, else a copy."""
    if len(pieces) == 1:
        return buffer[pieces[0]]
    return np.concatenate([buffer[piece] for piece in pieces])


def unpack(values: np.ndarray, buffer: np.ndarray, pieces: Sequence[slice]) -> None:
    """Copy an array of `packed` back into the pieces of the buffer."""
    if len(pieces) == 1:
        return  # a view
    start = 0
    for piece in pieces:
        stop = start + piece.stop - piece.start
        buffer[piece] = values[start:stop]
        start = stop
