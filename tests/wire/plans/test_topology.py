"""Schedules for every size: pure arithmetic, no ranks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.wire.plans.topology import children, chunks, groups, parent, segments

many = settings(max_examples=200)
SIZES = range(1, 130)


def words(part: slice) -> list[int]:
    assert part.step is None
    return list(range(part.start, part.stop))


@many
@given(length=st.integers(0, 500), parts=st.integers(1, 60))
def test_chunks_cover_every_word_once_and_longer_ones_come_first(length, parts):
    found = chunks(length, parts)
    sizes = [len(words(part)) for part in found]
    assert [word for part in found for word in words(part)] == list(range(length))
    longer = length % parts
    assert sizes == [length // parts + 1] * longer + [length // parts] * (
        parts - longer
    )


@many
@given(length=st.integers(0, 500), step=st.integers(1, 60))
def test_segments_cover_every_word_once_in_steps(length, step):
    found = [words(part) for part in segments(length, step)]
    assert sum(found, []) == list(range(length))
    assert all(len(part) == step for part in found[:-1])
    assert len(found) == max(1, -(-length // step))


@pytest.mark.parametrize("size", SIZES)
def test_every_rank_is_its_parents_child_and_nobody_elses(size):
    families = [list(children(rank, size)) for rank in range(size)]
    everyone = sorted(child for family in families for child in family)
    assert everyone == list(range(1, size))
    for rank, family in enumerate(families):
        assert family == sorted(family)
        assert [parent(child) for child in family] == [rank] * len(family)


@many
@given(hosts=st.lists(st.integers(0, 4), min_size=1, max_size=20))
def test_groups_by_host_hold_all_ranks_of_one_host_each(hosts):
    found = groups(tuple(hosts))
    assert sorted(sum(found, ())) == list(range(len(hosts)))
    names = [{hosts[rank] for rank in group} for group in found]
    assert all(len(name) == 1 for name in names)
    assert len(set.union(*names)) == len(found)
    assert all(list(group) == sorted(group) for group in found)
    assert [group[0] for group in found] == sorted(group[0] for group in found)
