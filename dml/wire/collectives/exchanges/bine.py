"""Bine all-reduce (De Sensi 2025): a butterfly whose partners are closer together."""

from collections.abc import Iterator

import numpy as np

from dml.types import Comm, Op, Round
from dml.wire.collectives.segments import SegmentedExchange
from dml.wire.collectives.steps.swing import swing_plan
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.plans.schedules import folded, full, step
from dml.wire.plans.topology import SEGMENT, fold


def bine_allreduce(
    comm: Comm, buffer: np.ndarray, op: Op = np.add, segment: int = SEGMENT
) -> None:
    """Reduce in place over all ranks.

        0 ── 3   2 ── 5   4 ── 7   6 ── 1     round 0: even r with r + 3
        0 ── 7   1 ── 2   3 ── 4   5 ── 6     round 1: even r with r - 1
        0 ── 1   2 ── 3   4 ── 5   6 ── 7     round 2: even r with r + 1

    Distances are (1 - (-2)^(s+1))/3 = 1, -1, 3, -5, …, by binary numbers with base -2,
    about 2/3 of those of a butterfly, so that fewer messages leave a group of adjacent
    ranks. The farthest partners exchange first: the ranks with equal sums then are
    disjoint sets, and the bits are equal on all ranks. The set with the smallest rank
    is the first operand.
    This is the variant for small buffers; that for large ones exchanges as
    `swing_allreduce` does. If p is not a power of two, the first ranks are folded.
    ⌈lg p⌉ rounds (2 more with folding), n elements per rank and round:
    ⌈lg p⌉(α + nβ + nγ).
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    segmented = SegmentedExchange(comm, buffer, op, Tag.BINE, segment)
    folding = fold(comm.size)

    def exchanges(place: int) -> None:
        plan = swing_plan(folding.power, ())
        position = int(plan.place[place])
        for dest, _, _, width in plan.steps:
            partner, received_first = folding.rank(int(dest[place])), position & width
            segmented.exchange(buffer, partner, buffer, partner, bool(received_first))

    segmented.folded(buffer, folding, exchanges)


def bine(
    size: int, length: int, itemsize: int = 4, segment: int = SEGMENT
) -> Iterator[Round]:
    """Yield the rounds of `bine_allreduce`."""
    places, ranks, folding, unfolding = folded(size, length * itemsize)
    segment = step(itemsize, segment)
    yield from (entry._replace(segment=segment) for entry in folding)
    nbytes = full(len(places), length * itemsize)
    for partner in swing_plan(len(places), ()).steps:
        yield Round(ranks, ranks[partner.dest], nbytes, True, segment)
    yield from unfolding
