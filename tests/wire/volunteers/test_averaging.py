"""Averages of groups on virtual ranks: means, conserved sums, silent members."""

import numpy as np
import pytest

from dml import sim
from dml.sim.events import Death, events
from dml.types import BadInput
from dml.wire.volunteers import Peer, average, find_group, settle

ALPHA, BETA = 1e-3, 1e-8
NETWORK = sim.Uniform(ALPHA, BETA, 0)
LENGTH = 20_011  # elements; parts are longer than an eager message


def averaged(size, text="", length=LENGTH, rounds=1, dtype=np.float64, bandwidths=()):
    """Return (group, Averaged, values before, values after, end) of all ranks."""
    speeds = dict(enumerate(bandwidths))

    def program(comm):
        if comm.rank == size:
            return comm.platform.compute(1e9)  # a dead rank allows unread messages
        bandwidth = speeds.get(comm.rank, 1.0)
        peer = Peer(comm, 16 * length, range(size), bandwidth=bandwidth)
        values = np.random.default_rng(comm.rank).standard_normal(length).astype(dtype)
        rows = []
        for _ in range(rounds):
            comm.platform.compute(0.1)
            group = find_group(peer, peer.next_round())
            before = values.copy()
            outcome = average(peer, group, values)
            rows.append((group, outcome, before, values.copy(), comm.Wtime()))
            settle(peer)
        return rows

    dying = [Death(size, 1e6), *events(text)]
    return sim.run(program, size + 1, NETWORK, events=dying)[:size]


def check_parts(by_rank, t=0):
    """Check that each part of the live members is a common mean or unchanged."""
    for rows in by_rank:
        if rows is None:
            continue
        group, outcome, *_ = rows[t]
        members = [by_rank[member] for member in group.members]
        for place in range(len(members)):
            part = slice(*outcome.edges[place : place + 2])
            results = [
                (other[t][1].counts[place], other[t][2][part], other[t][3][part])
                for other in members
                if other is not None and other[t][0] == group
            ]
            means = {
                (count, after.tobytes()) for count, _, after in results if count > 1
            }
            assert len(means) <= 1
            for count, before, after in results:
                assert count or np.array_equal(before, after)
            having = [result for result in results if result[0] > 1]
            if having and having[0][0] == len(having):  # no contributor has vanished
                sums = [sum(result[which] for result in having) for which in (1, 2)]
                np.testing.assert_allclose(*sums, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", (1, 2, 3, 8))
@pytest.mark.parametrize("dtype", (np.float32, np.float64, np.complex128))
def test_the_mean_of_a_group_is_exact_and_equal_on_all_members(size, dtype):
    by_rank = averaged(size, dtype=dtype)
    mean = sum(rows[0][2].astype(np.complex128) for rows in by_rank) / size
    for rows in by_rank:
        assert rows[0][1].counts == (size,) * size
        np.testing.assert_allclose(rows[0][3], mean, rtol=1e-5, atol=1e-6)
        assert rows[0][3].tobytes() == by_rank[0][0][3].tobytes()


@pytest.mark.parametrize("length", (0, 1, 5))
def test_short_buffers_have_empty_parts(length):
    by_rank = averaged(4, length=length)
    mean = sum(rows[0][2] for rows in by_rank) / 4
    assert all(np.allclose(rows[0][3], mean) for rows in by_rank)


def test_a_longer_buffer_than_that_of_the_peer_is_refused():
    """A mailbox has room for more, but not for the head of the mean of all parts."""

    def program(comm):
        peer = Peer(comm, 800, ())
        group = find_group(peer, peer.next_round())
        average(peer, group, np.ones(100))
        with pytest.raises(BadInput, match="at most 800 bytes .* got 808 bytes"):
            average(peer, group, np.ones(101))

    sim.run(program, 1)


def test_parts_follow_the_bandwidths_and_clients_own_none():
    by_rank = averaged(4, bandwidths=[4.0, 2.0, 2.0, 0.0])
    sizes = np.diff(by_rank[0][0][1].edges)
    assert sizes[0] > 1.9 * sizes[1] and sizes[1] in (sizes[2], sizes[2] + 1)
    assert sizes[3] == 0 and sizes.sum() == LENGTH
    assert by_rank[3][0][1].counts == (4, 4, 4, 0)
    check_parts(by_rank)


@pytest.mark.parametrize("time", (0.1, 0.11, 0.118, 0.122, 0.13, 0.15))
@pytest.mark.parametrize("rank", (0, 2))
def test_a_member_that_vanishes_at_any_time_leaves_a_defined_result(rank, time):
    by_rank = averaged(4, f"die:{rank}@{time}", rounds=3)
    assert by_rank[rank] is None
    for t in range(3):
        check_parts(by_rank, t)
    live = [rows for peer, rows in enumerate(by_rank) if peer != rank]
    for rows in live:
        assert rows[0][-1] < 5.0
    last = [rows[-1][0].members for rows in live]
    assert all(rank not in members for members in last)


def test_the_part_of_a_vanished_owner_stays_local_and_its_contributions_count():
    seen = set()
    for time in np.arange(0.107, 0.127, 0.001):
        by_rank = averaged(4, f"die:1@{time}")
        check_parts(by_rank)
        seen.update(rows[0][1].counts for rows in by_rank if rows)
    assert (3, 0, 3, 3) in seen  # it vanishes before its contributions
    assert (4, 0, 4, 4) in seen  # between its contributions and its mean
    assert (4, 4, 4, 4) in seen  # after its mean


def test_all_members_contribute_in_spite_of_lost_messages():
    for seed in range(4):
        text = f"lose:0,1,2,3>0,1,2,3*0.{seed}5@0.1"
        by_rank = averaged(4, text, rounds=2)
        for t in (0, 1):
            check_parts(by_rank, t)
        full = [rows for rows in by_rank if len(rows[1][0].members) == 4]
        assert all(min(rows[1][1].counts) == 4 for rows in full)


def test_a_link_that_fails_in_one_direction_costs_two_parts():
    by_rank = averaged(3, "lose:0>2@0.11")  # after the HELLOs
    check_parts(by_rank)
    counts = [rows[0][1].counts for rows in by_rank]
    # 0 is not in the mean of part 2, and 2 does not receive the mean of part 0
    assert counts == [(3, 3, 0), (3, 3, 2), (0, 3, 2)]


def test_a_member_does_not_contribute_to_an_owner_without_messages():
    by_rank = averaged(3, "lose:1>2@0")
    assert [rows[0][1].counts for rows in by_rank] == [(3, 2, 2), (3, 2, 0), (3, 0, 2)]
    before, after = (sum(rows[0][which] for rows in by_rank) for which in (2, 3))
    np.testing.assert_allclose(after, before, atol=1e-12)


def test_a_client_behind_a_nat_takes_part():
    by_rank = averaged(4, "nat:3@0", bandwidths=[1.0, 1.0, 1.0, 0.0], rounds=2)
    mean = sum(rows[0][2] for rows in by_rank) / 4
    for rows in by_rank:
        np.testing.assert_allclose(rows[1][3], mean, rtol=1e-6)


def test_the_seconds_of_an_average_are_those_of_its_messages():
    size, length = 4, 100_000
    by_rank = averaged(size, length=length, rounds=6)
    nbytes = 8 * length * (size - 1) / size
    ends = [rows[-1][-1] for rows in by_rank]
    begun = max(rows[-2][-1] for rows in by_rank) + 0.1
    # 2 rounds of parts, and the small messages around them
    assert max(ends) - begun < 2 * nbytes * BETA * 1.2 + 40 * ALPHA
