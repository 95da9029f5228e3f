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
            return comm.platform.compute(1e9)  # its death allows unread messages
        bandwidth = speeds.get(comm.rank, 1.0)
        peer = Peer(comm, 16 * length, range(size), bandwidth=bandwidth)
        values = np.random.default_rng(comm.rank).standard_normal(length).astype(dtype)
        found = []
        for _ in range(rounds):
            comm.platform.compute(0.1)
            group = find_group(peer, peer.next_round())
            before = values.copy()
            outcome = average(peer, group, values)
            found.append((group, outcome, before, values.copy(), comm.Wtime()))
            settle(peer)
        return found

    dying = [Death(size, 1e6), *events(text)]
    return sim.run(program, size + 1, NETWORK, events=dying)[:size]


def check_parts(found, t=0):
    """Check each part of the live members: a common mean, or their own values."""
    for own in found:
        if own is None:
            continue
        group, outcome, *_ = own[t]
        members = [found[member] for member in group.members]
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
            assert len(means) <= 1  # one result for all that have it
            for count, before, after in results:
                assert count or np.array_equal(before, after)
            having = [result for result in results if result[0] > 1]
            if having and having[0][0] == len(having):  # nobody of them has vanished
                sums = [sum(result[which] for result in having) for which in (1, 2)]
                np.testing.assert_allclose(*sums, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", (1, 2, 3, 8))
@pytest.mark.parametrize("dtype", (np.float32, np.float64, np.complex128))
def test_the_mean_of_a_group_is_exact_and_equal_on_all_members(size, dtype):
    found = averaged(size, dtype=dtype)
    mean = sum(own[0][2].astype(np.complex128) for own in found) / size
    for own in found:
        assert own[0][1].counts == (size,) * size
        np.testing.assert_allclose(own[0][3], mean, rtol=1e-5, atol=1e-6)
        assert own[0][3].tobytes() == found[0][0][3].tobytes()


@pytest.mark.parametrize("length", (0, 1, 5))
def test_short_buffers_have_empty_parts(length):
    found = averaged(4, length=length)
    mean = sum(own[0][2] for own in found) / 4
    assert all(np.allclose(own[0][3], mean) for own in found)


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
    found = averaged(4, bandwidths=[4.0, 2.0, 2.0, 0.0])
    sizes = np.diff(found[0][0][1].edges)
    assert sizes[0] > 1.9 * sizes[1] and sizes[1] in (sizes[2], sizes[2] + 1)
    assert sizes[3] == 0 and sizes.sum() == LENGTH
    assert found[3][0][1].counts == (4, 4, 4, 0)
    check_parts(found)


@pytest.mark.parametrize("time", (0.1, 0.11, 0.118, 0.122, 0.13, 0.15))
@pytest.mark.parametrize("rank", (0, 2))
def test_a_member_that_vanishes_at_any_time_leaves_a_defined_result(rank, time):
    found = averaged(4, f"die:{rank}@{time}", rounds=3)
    assert found[rank] is None
    for t in range(3):
        check_parts(found, t)
    live = [own for peer, own in enumerate(found) if peer != rank]
    for own in live:
        assert own[0][-1] < 5.0
    last = [own[-1][0].members for own in live]
    assert all(rank not in members for members in last)


def test_a_vanished_owner_leaves_its_part_local_and_its_contributions_where_they_are():
    seen = set()
    for time in np.arange(0.107, 0.127, 0.001):
        found = averaged(4, f"die:1@{time}")
        check_parts(found)
        seen.update(own[0][1].counts for own in found if own)
    assert (3, 0, 3, 3) in seen  # before its contributions
    assert (4, 0, 4, 4) in seen  # after them
    assert (4, 4, 4, 4) in seen  # after its mean


def test_lost_messages_leave_nobody_out():
    for seed in range(4):
        text = f"lose:0,1,2,3>0,1,2,3*0.{seed}5@0.1"
        found = averaged(4, text, rounds=2)
        for t in (0, 1):
            check_parts(found, t)
        full = [own for own in found if len(own[1][0].members) == 4]
        assert all(min(own[1][1].counts) == 4 for own in full)


def test_a_link_that_fails_in_one_direction_costs_two_parts():
    found = averaged(3, "lose:0>2@0.11")  # after they have greeted each other
    check_parts(found)
    counts = [own[0][1].counts for own in found]
    # 0 is not in the mean of part 2, and 2 does not receive the mean of part 0
    assert counts == [(3, 3, 0), (3, 3, 2), (0, 3, 2)]


def test_a_member_that_never_heard_an_owner_keeps_its_values():
    found = averaged(3, "lose:1>2@0")
    assert [own[0][1].counts for own in found] == [(3, 2, 2), (3, 2, 0), (3, 0, 2)]
    before, after = (sum(own[0][which] for own in found) for which in (2, 3))
    np.testing.assert_allclose(after, before, atol=1e-12)


def test_a_client_behind_a_nat_takes_part():
    found = averaged(4, "nat:3@0", bandwidths=[1.0, 1.0, 1.0, 0.0], rounds=2)
    mean = sum(own[0][2] for own in found) / 4
    for own in found:
        np.testing.assert_allclose(own[1][3], mean, rtol=1e-6)


def test_the_seconds_of_an_average_are_those_of_its_messages():
    size, length = 4, 100_000
    found = averaged(size, length=length, rounds=6)
    nbytes = 8 * length * (size - 1) / size
    ends = [own[-1][-1] for own in found]
    begun = max(own[-2][-1] for own in found) + 0.1
    # 2 rounds of parts, and the small messages around them
    assert max(ends) - begun < 2 * nbytes * BETA * 1.2 + 40 * ALPHA
