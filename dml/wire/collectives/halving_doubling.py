"""Halving-doubling all-reduce (Rabenseifner 2004): a butterfly that sends less."""

import numpy as np

from dml.types import Comm, Op
from dml.wire.collectives.segments import SegmentedExchange, copied
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.plans.topology import SEGMENT, fold, halving


def halving_doubling_allreduce(
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    segment: int = SEGMENT,
    result: np.ndarray | None = None,
) -> None:
    """Reduce in place over all ranks.

        rank 0 │████████████████│    before
               │████████│ ──────►    round 0: partner r xor 1 adds the other half
               │████│ ──►            round 1: partner r xor 2, a quarter, …;
                                     then all rounds in reverse order, which copy

    In a reducing round partners have the same range of m elements. Each keeps one half
    (⌊m/2⌋ or ⌈m/2⌉ elements) and adds to it the half that its partner sends. If p is
    not a power of two, the first ranks are folded in pairs, as in the butterfly.
    2⌈lg p⌉ rounds, 2(p-1)n elements over all ranks; folding adds 2 rounds, and 2n
    elements per pair:
    2⌈lg p⌉α + 2(p-1)/p·nβ + (p-1)/p·nγ.
    With `result`, an array of a narrower type, sums are rounded and copied in its type.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    tag, folding = Tag.HALVING_DOUBLING, fold(comm.size)
    segmented = SegmentedExchange(comm, buffer, op, tag, segment)

    def exchanges(place: int) -> None:
        halves = halving(place, folding.power, len(buffer))
        for half in halves:
            partner = folding.rank(half.partner)
            segmented.exchange(buffer[half.send], partner, buffer[half.keep], partner)
        own = halves[-1].keep if halves else slice(None)
        sums = copied(buffer, result, own)
        for half in reversed(halves):
            partner = folding.rank(half.partner)
            sent, received = sums[half.keep], sums[half.send]
            comm.Sendrecv(sent, partner, tag, received, partner, tag)

    segmented.folded(buffer, folding, exchanges, result)
