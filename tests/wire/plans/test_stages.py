"""The partitioner against every way to cut."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.types import BadInput
from dml.wire.plans.stages import balanced_parts, equal_parts, imbalance

few = settings(derandomize=True, deadline=None, max_examples=80, database=None)
SECONDS = st.lists(st.integers(1, 50), min_size=1, max_size=9)


def every(layers, count):
    for inner in combinations(range(1, layers), count - 1):
        yield [range(a, b) for a, b in pairwise((0, *inner, layers))]


@given(SECONDS, st.integers(1, 9))
@few
def test_no_other_cut_has_a_faster_slowest_part(seconds, count):
    count = min(count, len(seconds))
    cuts = balanced_parts(seconds, count)
    assert cuts in list(every(len(seconds), count))  # all layers, in a row, none empty
    best = min(imbalance(seconds, other) for other in every(len(seconds), count))
    assert imbalance(seconds, cuts) == best
    assert equal_parts(len(seconds), count) in list(every(len(seconds), count))
    assert imbalance(
        [1] * len(seconds), equal_parts(len(seconds), count)
    ) == pytest.approx(-(-len(seconds) // count) * count / len(seconds))


def test_one_slow_layer_has_a_part_of_its_own():
    seconds = [1, 1, 1, 4, 2, 2, 1]
    cuts = balanced_parts(seconds, 3)
    assert cuts == [range(0, 3), range(3, 4), range(4, 7)]
    assert imbalance(seconds, cuts) == 5 * 3 / 12
    assert imbalance(seconds, equal_parts(7, 3)) == 6 * 3 / 12


@pytest.mark.parametrize("count", [0, 3])
def test_every_part_has_a_layer(count):
    with pytest.raises(BadInput, match=f"got 2 layers and {count} parts"):
        balanced_parts([1.0, 1.0], count)
