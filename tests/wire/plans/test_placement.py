"""Copies in peers' memory: every formula of recovery against the definition."""

from math import ceil, comb

import pytest

from dml.types import BadInput
from dml.wire.plans.placement import (
    PLACEMENTS,
    Placement,
    enumerated,
    group_formula,
    groups,
    probability,
    recoverable,
    ring,
    sampled,
)

SMALL = [(size, copies) for size in range(1, 9) for copies in range(1, size + 1)]


@pytest.mark.parametrize("make", PLACEMENTS.values(), ids=PLACEMENTS)
@pytest.mark.parametrize("size, copies", SMALL)
def test_the_probability_is_the_share_of_sets_that_are_recoverable(make, size, copies):
    placement = make(size, copies)
    assert placement.size == size
    for failures in range(size + 1):
        assert probability(placement, failures) == enumerated(placement, failures)


@pytest.mark.parametrize("rings", [(2, 5, 3), (4, 4), (7, 2)])
def test_the_probability_of_any_rings_is_that_of_the_definition(rings):
    placement = Placement(rings, 2)
    for failures in range(placement.size + 1):
        assert probability(placement, failures) == enumerated(placement, failures)


@pytest.mark.parametrize("make", PLACEMENTS.values(), ids=PLACEMENTS)
@pytest.mark.parametrize("size, copies", SMALL)
def test_each_state_has_m_holders_and_each_rank_stores_m_states(make, size, copies):
    placement = make(size, copies)
    for rank in range(size):
        holders, owners = placement.holders(rank), placement.owners(rank)
        assert holders[0] == owners[0] == rank
        assert len(set(holders)) == len(set(owners)) == copies
        assert all(rank in placement.owners(holder) for holder in holders)
        assert all(rank in placement.holders(owner) for owner in owners)


def test_groups_have_the_probabilities_of_geminis_formula():
    for groups_count, copies in [(8, 2), (4, 3), (3, 4)]:
        size = groups_count * copies
        for failures in range(copies, 2 * copies):
            expected = group_formula(size, copies, failures)
            assert probability(groups(size, copies), failures) == pytest.approx(
                expected
            )


def test_the_published_probabilities_of_16_machines():
    assert f"{probability(groups(16, 2), 2):.1%}" == "93.3%"
    assert f"{probability(ring(16, 2), 2):.1%}" == "86.7%"
    assert f"{probability(groups(16, 2), 3):.1%}" == "80.0%"


@pytest.mark.parametrize("size", range(2, 15))
def test_groups_recover_from_at_least_as_many_failures_as_a_ring(size):
    for copies in range(1, size + 1):
        for failures in range(size + 1):
            grouped = probability(groups(size, copies), failures)
            assert grouped >= probability(ring(size, copies), failures)


def test_m_failures_are_within_2m_minus_3_sets_of_the_best_placement():
    """A set of m ranks has all copies of at most m states: ⌈N/m⌉ sets are fatal."""
    for size in range(3, 30):
        for copies in range(2, size + 1):
            best = 1 - ceil(size / copies) / comb(size, copies)
            gap = best - probability(groups(size, copies), copies)
            bound = max(0, 2 * copies - 3) if size % copies else 0
            assert -1e-12 <= gap <= bound / comb(size, copies) + 1e-12


def test_fewer_failures_than_copies_are_always_recoverable_and_a_pair_may_not_be():
    placement = groups(7, 2)
    assert placement.rings == (2, 2, 3)
    assert all(recoverable(placement, [rank]) for rank in range(7))
    assert not recoverable(placement, {0, 1}) and recoverable(placement, {1, 2})
    assert not recoverable(placement, {4, 6}) and recoverable(placement, {0, 2, 4})


@pytest.mark.parametrize("placement", [groups(17, 3), ring(16, 2)])
def test_random_sets_have_the_probability(placement):
    draws = 20_000
    for failures in (2, 4, 6):
        exact = probability(placement, failures)
        deviation = (exact * (1 - exact) / draws) ** 0.5
        share = sampled(placement, failures, draws, seed=1)
        assert abs(share - exact) <= 4 * deviation


@pytest.mark.parametrize("copies", (0, 5))
def test_more_copies_than_ranks_are_refused(copies):
    with pytest.raises(BadInput, match="expected 1 to 4 copies"):
        groups(4, copies)
