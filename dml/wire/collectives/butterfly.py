"""Butterfly all-reduce (recursive doubling): few rounds, all n elements in each."""

import numpy as np

from dml.types import Comm, Op
from dml.wire.collectives.segments import SegmentedExchange
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.plans.topology import SEGMENT, fold


def butterfly_allreduce(
    comm: Comm, buffer: np.ndarray, op: Op = np.add, segment: int = SEGMENT
) -> None:
    """Reduce in place over all ranks.

        0 ── 1   2 ── 3   4 ── 5   6 ── 7     round 0: partner r xor 1
        0 ────── 2   1 ────── 3   …           round 1: partner r xor 2
        0 ────────────── 4   …                round 2: partner r xor 4

    Partners exchange all n elements and both add, so after round s every rank has the
    sum of its group of 2^(s+1) ranks. Both take the elements of the lower partner as
    the first operand: a · b and b · a of complex numbers may differ in the last bit.
    If p is not a power of two, the first ranks are folded: before round 0 the odd rank
    of each pair sends its buffer to the even rank, and receives the result at the end.
    ⌈lg p⌉ rounds (2 more with folding), n elements per rank and round:
    ⌈lg p⌉(α + nβ + nγ).
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    segmented = SegmentedExchange(comm, buffer, op, Tag.BUTTERFLY, segment)
    folding = fold(comm.size)

    def exchanges(place: int) -> None:
        step = 1
        while step < folding.power:
            partner = folding.rank(place ^ step)
            segmented.exchange(buffer, partner, buffer, partner, partner < comm.rank)
            step *= 2

    segmented.folded(buffer, folding, exchanges)
