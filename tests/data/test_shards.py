import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.data.shards import bounds, shard
from dml.types import BadInput

counts = st.integers(0, 200)
sizes = st.integers(1, 40)


@given(counts, sizes)
def test_shards_in_rank_order_are_the_whole(count, size):
    parts = [shard(range(count), rank, size) for rank in range(size)]
    assert [example for part in parts for example in part] == list(range(count))


@given(counts, sizes)
def test_shards_differ_by_at_most_one_and_the_longer_come_first(count, size):
    lengths = [len(shard(range(count), rank, size)) for rank in range(size)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] <= 1


@pytest.mark.parametrize("rank, size", [(-1, 2), (2, 2), (0, 0)])
def test_a_rank_outside_the_world_is_bad_input(rank, size):
    with pytest.raises(BadInput, match="expected 0 <= rank < size"):
        bounds(10, rank, size)
