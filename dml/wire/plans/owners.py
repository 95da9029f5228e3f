"""Owners of the leaves of a model: consecutive leaves for each rank, balanced by cost.

    leaves    a  b   c  d  e   f    in the order of the tree, on any number of ranks
    owners    └─ 0 ─┘└── 1 ──┘└ 2   the leaves of a rank are one part of the buffer

Pure arithmetic.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from dml.wire.plans.pipeline.stages import balanced_parts

Shape = tuple[int, ...]


class Owners(NamedTuple):
    """The division of packed leaves, and of scalars behind them, among ranks.

    Attributes:
      leaves: Indices of the leaves of each rank; empty for ranks without leaves.
      parts: The part of each rank in the buffer; the last part ends with the scalars.
    """

    leaves: Sequence[range]
    parts: Sequence[slice]

    @property
    def lengths(self) -> list[int]:
        """Number of elements of each part."""
        return [part.stop - part.start for part in self.parts]


def owners(
    shapes: Sequence[Shape],
    ranks: int,
    costs: Sequence[float] | None = None,
    scalars: int = 0,
) -> Owners:
    """Return the owners of leaves, so that the largest cost of a rank is minimal.

    Args:
      shapes: Shapes of the leaves in the order of the buffer.
      ranks: Number of ranks.
      costs: Cost of the update of each leaf; None: its number of elements.
      scalars: Number of elements behind the leaves, which the last rank owns.
    """
    count = len(shapes)
    costs = [math.prod(shape) for shape in shapes] if costs is None else costs
    leaves = balanced_parts(costs, min(ranks, count))
    leaves += [range(count, count)] * (ranks - count)
    parts, start = [], 0
    for own in leaves:
        stop = start + sum(math.prod(shapes[n]) for n in own)
        parts.append(slice(start, stop))
        start = stop
    parts[-1] = slice(parts[-1].start, start + scalars)
    return Owners(leaves, parts)


def words(owned: Owners) -> list[int]:
    """Return the elements that each rank sends in an update.

    Rank r sends its terms of all parts except its own, and then, around a ring, the new
    values of all parts except that of rank r+1: 2(p-1)n elements over all ranks.
    """
    lengths = owned.lengths
    total, size = sum(lengths), len(lengths)
    return [
        2 * total - lengths[rank] - lengths[(rank + 1) % size] for rank in range(size)
    ]
