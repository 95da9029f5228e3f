"""Messages of broadcasts and of reductions; see `dml.wire.plans.broadcasts`."""

import numpy as np

from dml.types import Comm, Op
from dml.wire.collectives.segments import SegmentedExchange
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.plans.broadcasts import Broadcast, Turn, turns
from dml.wire.plans.topology import chunks

PIECE = 1 << 16  # bytes of a piece


def broadcast_by(
    broadcast: Broadcast,
    comm: Comm,
    buffer: np.ndarray,
    root: int = 0,
    segment: int = PIECE,
) -> None:
    """Copy the buffer of the rank `root` to all ranks.

    Args:
      broadcast: The rounds.
      comm: The ranks.
      buffer: Contiguous buffer, of equal length and dtype on all ranks.
      root: Rank whose values are copied.
      segment: Bytes of a piece, if the broadcast has pieces.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    tag = Tag.BROADCAST
    for turn, sent, received in steps(broadcast, comm, buffer, root, segment):
        dest, source = at(comm, turn.dest, root), at(comm, turn.source, root)
        if turn.source is None:
            comm.Send(sent, dest, tag)
        elif turn.dest is None:
            comm.Recv(received, source, tag)
        else:
            comm.Sendrecv(sent, dest, tag, received, source, tag)


def reduce_by(
    broadcast: Broadcast,
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    root: int = 0,
    segment: int = PIECE,
) -> None:
    """Reduce over all ranks into the buffer of the rank `root`.

    The buffers of the other ranks are overwritten with partial sums. Arguments are
    those of `broadcast_by`.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    segmented = SegmentedExchange(comm, buffer, op, Tag.BROADCAST, segment)
    tag, rounds = Tag.BROADCAST, steps(broadcast, comm, buffer, root, segment)
    for turn, kept, outgoing in reversed(rounds):
        child, parent = at(comm, turn.dest, root), at(comm, turn.source, root)
        if turn.adds:
            if turn.source is None:
                segmented.receive(kept, child)
            elif turn.dest is None:
                segmented.send(outgoing, parent)
            else:
                segmented.exchange(outgoing, parent, kept, child)
        elif turn.source is None:
            comm.Recv(kept, child, tag)
        elif turn.dest is None:
            comm.Send(outgoing, parent, tag)
        else:
            comm.Sendrecv(outgoing, parent, tag, kept, child, tag)


def steps(
    broadcast: Broadcast, comm: Comm, buffer: np.ndarray, root: int, segment: int
) -> list[tuple[Turn, np.ndarray, np.ndarray]]:
    """Return this rank's rounds, with the memory that is sent and that is received."""
    most = max(1, segment // buffer.itemsize)
    pieces = broadcast.pieces(comm.size, len(buffer), most)
    parts = chunks(len(buffer), pieces)

    def memory(numbers: slice) -> np.ndarray:
        if numbers.start == numbers.stop:
            return buffer[:0]
        return buffer[parts[numbers.start].start : parts[numbers.stop - 1].stop]

    place = (comm.rank - root) % comm.size
    return [
        (turn, memory(turn.sent), memory(turn.received))
        for turn in turns(broadcast, comm.size, pieces)[place]
    ]


def at(comm: Comm, place: int | None, root: int) -> int:
    """Return the rank at a place; the root has place 0."""
    return (root + (place or 0)) % comm.size
