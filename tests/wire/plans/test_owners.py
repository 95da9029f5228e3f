"""Owners of the leaves of a model."""

import math
from itertools import pairwise

import numpy as np
import pytest

from dml.wire.plans.owners import owners, words

SHAPES = [(4, 3), (5,), (2, 2, 2), (1,), (6, 7), (3,), (9,)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 6, 7, 12])
def test_parts_cover_leaves_and_scalars_in_order(ranks):
    plan = owners(SHAPES, ranks, scalars=2)
    assert [n for own in plan.leaves for n in own] == list(range(len(SHAPES)))
    edges = [plan.parts[0].start, *(part.stop for part in plan.parts)]
    assert edges[0] == 0 and edges[-1] == sum(map(math.prod, SHAPES)) + 2
    assert all(a.stop == b.start for a, b in pairwise(plan.parts))
    for own, part in list(zip(plan.leaves, plan.parts, strict=True))[:-1]:
        assert part.stop - part.start == sum(math.prod(SHAPES[n]) for n in own)
    assert sum(words(plan)) == 2 * (ranks - 1) * edges[-1]


def test_the_cost_balances_the_leaves():
    by_size, by_count = owners(SHAPES, 2), owners(SHAPES, 2, [1] * len(SHAPES))
    sizes = [sum(math.prod(SHAPES[n]) for n in own) for own in by_size.leaves]
    assert max(sizes) == min(
        max(np.sum(part) for part in np.split([*map(math.prod, SHAPES)], [cut]))
        for cut in range(1, len(SHAPES))
    )
    assert {len(own) for own in by_count.leaves} == {3, 4}
