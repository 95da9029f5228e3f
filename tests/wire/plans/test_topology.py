"""Schedules for every size: pure arithmetic, no ranks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.wire.plans.topology import (
    children,
    chunks,
    fold,
    groups,
    halving,
    parent,
    rounds,
    segments,
)

many = settings(max_examples=200, derandomize=True, deadline=None, database=None)
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
def test_rounds_are_the_logarithm_rounded_up(size):
    assert 2 ** rounds(size) >= size
    assert size == 1 or 2 ** (rounds(size) - 1) < size


@pytest.mark.parametrize("size", SIZES)
def test_every_rank_is_its_parents_child_and_nobody_elses(size):
    families = [list(children(rank, size)) for rank in range(size)]
    everyone = sorted(child for family in families for child in family)
    assert everyone == list(range(1, size))
    for rank, family in enumerate(families):
        assert family == sorted(family)
        assert [parent(child) for child in family] == [rank] * len(family)


@pytest.mark.parametrize("size", SIZES)
def test_folding_gives_every_place_one_rank(size):
    folded = fold(size)
    assert folded.power + folded.extra == size
    assert folded.power & (folded.power - 1) == 0
    assert folded.extra < folded.power
    awake = [rank for rank in range(size) if folded.place(rank) >= 0]
    assert [folded.place(rank) for rank in awake] == list(range(folded.power))
    assert [folded.rank(place) for place in range(folded.power)] == awake
    asleep = sorted(set(range(size)) - set(awake))
    assert asleep == list(range(1, 2 * folded.extra, 2))
    assert {rank - 1 for rank in asleep} <= set(awake)


@many
@given(bits=st.integers(0, 6), length=st.integers(0, 300))
def test_halving_partners_split_one_range_and_mirror_each_other(bits, length):
    power = 2**bits
    every = [halving(place, power, length) for place in range(power)]
    for place, rounds_of_one in enumerate(every):
        assert len(rounds_of_one) == bits
        held = (0, length)
        for number, half in enumerate(rounds_of_one):
            partner = every[half.partner][number]
            assert half.partner == place ^ 2**number
            assert partner.partner == place
            assert (half.keep, half.send) == (partner.send, partner.keep)
            both = sorted([half.keep, half.send], key=lambda part: part.start)
            # an empty half may lie at either end, so compare words
            assert words(both[0]) + words(both[1]) == list(range(*held))
            assert abs(len(words(half.keep)) - len(words(half.send))) <= 1
            held = (half.keep.start, half.keep.stop)
    kept = [words(halves[-1].keep) for halves in every if halves]
    assert sorted(sum(kept, [])) == (list(range(length)) if bits else [])


@pytest.mark.parametrize("size", range(1, 20))
def test_groups_by_width_are_neighbours_and_only_the_last_is_smaller(size):
    for width in range(1, size + 1):
        found = groups((0,) * size, width)
        assert sum(found, ()) == tuple(range(size))
        assert all(len(group) == width for group in found[:-1])
        assert 0 < len(found[-1]) <= width


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
