"""All-reduce by trees that are packed for a network (Wang 2020, Zhao 2024)."""

from collections.abc import Iterator

import numpy as np

from dml.types import Comm, Op, Round
from dml.wire.collectives.trees.run import PIECE, broadcast_by, reduce_by
from dml.wire.plans.broadcasts import Broadcast, broadcast_rounds, reduce_rounds


def packed_allreduce(
    broadcast: Broadcast,
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    segment: int = PIECE,
) -> None:
    """Reduce in place over all ranks.

        piece 0:  1 ─► 0 ◄─ 3, 2 ─► 1      then the reverse, a broadcast; every piece
        piece 1:  0 ─► 1 ◄─ 2, 3 ─► 2      has a tree with its own root

    A rank adds the sums of its children in the order in which the schedule sends them.
    The time is close to the bound of `sim.networks.cuts` for long buffers.
    2(p-1)n elements over all ranks.

    Args:
      broadcast: The trees, from `plans.packing`.
      comm: The ranks.
      buffer: Buffer to reduce.
      op: The reduction.
      segment: Bytes of a segment.
    """
    reduce_by(broadcast, comm, buffer, op, segment=segment)
    broadcast_by(broadcast, comm, buffer, segment=segment)


def packed(
    broadcast: Broadcast,
    size: int,
    length: int,
    itemsize: int = 4,
    segment: int = PIECE,
) -> Iterator[Round]:
    """Yield the rounds of `packed_allreduce`."""
    yield from reduce_rounds(broadcast, size, length, itemsize, segment)
    yield from broadcast_rounds(broadcast, size, length, itemsize, segment)
