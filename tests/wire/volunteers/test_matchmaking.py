"""Matchmaking on virtual ranks: agreement, order of leaders, deadlines, late peers."""

from itertools import pairwise

import numpy as np
import pytest
from studies.volunteers import drops

from dml import sim
from dml.sim.events import Death, events
from dml.types import BadInput
from dml.wire.plans.averaging.grouping import line
from dml.wire.volunteers import Peer, Settings, average, find_group, settle
from dml.wire.volunteers import messages as m
from dml.wire.volunteers.search import Search, handle

ALPHA = 1e-3
NETWORK = sim.Uniform(ALPHA, 1e-9, 0)


def matched(size, delays=(), rounds=1, text="", key=None, known=None, **options):
    """Return the groups of all ranks and rounds, and their times.

    Args:
      delays: Seconds of each rank before its first round, 0 by default.
      known: Function of a rank -> ids of known peers; by default all.
    """
    settings = options.pop("settings", Settings())

    def program(comm):
        if comm.rank == size:
            return comm.platform.compute(1e9)  # a dead rank allows unread messages
        ids = known(comm.rank) if known else range(size)
        mine = {name: value[comm.rank] for name, value in options.items()}
        peer = Peer(comm, 0, ids, settings=settings, **mine)
        comm.platform.compute(dict(enumerate(delays)).get(comm.rank, 0.0))
        rows = []
        for _ in range(rounds):
            group = find_group(peer, peer.next_round(), *([key] if key else []))
            rows.append((group, comm.Wtime()))
            settle(peer)
            comm.platform.compute(0.1)
        peer.close()
        return rows

    dying = [Death(size, 1e3), *events(text)]
    return sim.run(program, size + 1, NETWORK, events=dying)[:size]


def groups(by_rank, t=0):
    return [rows and rows[t][0].members for rows in by_rank]


@pytest.mark.parametrize("size", (2, 3, 8))
def test_peers_that_know_each_other_are_one_group_after_three_messages(size):
    by_rank = matched(size)
    assert groups(by_rank) == [tuple(range(size))] * size
    ends = [rows[0][1] for rows in by_rank]
    # messages to itself, HELLOs, JOINs, BEGINs: one at a time at the port of the leader
    assert max(ends) < (8 + 6 * size) * ALPHA


def test_one_known_peer_is_sufficient():
    by_rank = matched(6, rounds=3, known=lambda rank: [(rank + 1) % 6])
    assert groups(by_rank, 2) == [tuple(range(6))] * 6


def test_the_lowest_priority_leads_and_ties_are_broken_by_id():
    leaders = [rows[0][0].leader for rows in matched(4, priority=[1, 0, 0, 2])]
    assert leaders == [1] * 4
    assert [rows[0][0].leader for rows in matched(4)] == [0] * 4


def test_a_group_waits_for_the_usual_last_arrival_of_earlier_rounds():
    """A peer that is late by 60 ms is an outlier, but not after a round of 40 ms."""
    delays_TxP = 0.01 * np.array([[0, 1, 2, 3, 4], [0, 0, 0, 0, 6]])

    def program(comm, first):
        peer, found = Peer(comm, 0, range(5)), []
        for t in range(first, 2):
            comm.platform.compute(0.1 + delays_TxP[t, comm.rank])
            found.append(find_group(peer, peer.next_round()).members)
            settle(peer)
        comm.platform.compute(1.0)
        while peer.mailbox.receive(comm.Wtime() + 0.1):
            pass
        peer.close()
        return found

    def run(first):
        return sim.run(lambda comm: program(comm, first), 5, NETWORK)

    everybody = tuple(range(5))
    assert run(first=0) == [[everybody] * 2] * 5
    assert run(first=1) == [[everybody[:4]]] * 4 + [[(4,)]]


@pytest.mark.parametrize("late", range(3))
def test_followers_join_a_preceding_leader_that_arrives_late(late):
    delays = [0.0] * 3
    delays[late] = 0.004
    by_rank = matched(3, delays=[0.01 + delay for delay in delays])
    assert groups(by_rank) == [(0, 1, 2)] * 3
    assert {rows[0][0].leader for rows in by_rank} == {0}


def test_groups_of_a_width_are_full_but_one():
    by_rank = matched(7, settings=Settings(width=3))
    sizes = sorted(len(members) for members in groups(by_rank))
    assert sizes == [1, 3, 3, 3, 3, 3, 3]


def test_peers_with_different_keys_are_in_different_groups():
    shape = (2, 3)
    lines = [
        lambda t, peer, axis=axis: int(line(np.int64(peer), shape, axis))
        for axis in (0, 1)
    ]
    by_rank = matched(6, rounds=2, key=lambda t, peer: lines[t](t, peer))
    assert groups(by_rank, 0) == [(0, 3), (1, 4), (2, 5)] * 2
    assert groups(by_rank, 1) == [(0, 1, 2)] * 3 + [(3, 4, 5)] * 3


def test_all_times_scale_with_the_network_and_the_work():
    def ends(scale):
        def program(comm):
            if comm.rank == 5:
                return comm.platform.compute(scale * 1e9)
            peer = Peer(comm, 0, range(5))
            comm.platform.compute(scale * 0.01 * comm.rank**2)
            group = find_group(peer, 0)
            end = comm.Wtime()
            settle(peer)
            return group.members, end / scale

        network = sim.Uniform(scale * ALPHA, scale * 1e-6, 0)
        return sim.run(program, 6, network, events=[Death(5, scale * 1e3)])

    for one, other in zip(ends(1.0)[:5], ends(1000.0)[:5], strict=True):
        assert one[0] == other[0] and one[1] == pytest.approx(other[1])


def test_a_group_does_not_wait_for_a_peer_far_behind_the_others():
    by_rank = matched(5, delays=[0.1, 0.11, 0.12, 0.13, 50.0])
    assert groups(by_rank) == [(0, 1, 2, 3)] * 4 + [(4,)]
    assert max(rows[0][1] for rows in by_rank[:4]) < 1.0


@pytest.mark.parametrize("time", (0.001, 0.0052, 0.012, 0.05, 0.1105))
def test_the_group_of_a_vanished_leader_does_not_hang(time):
    delays = [0.0, 0.0, 0.0, 0.02]
    by_rank = matched(4, delays, rounds=20, text=f"die:0@{time}")
    assert by_rank[0] is None
    for rows in by_rank[1:]:
        assert (1, 2, 3) in [group.members for group, _ in rows[3:]]


def test_a_peer_that_was_absent_returns():
    def program(comm):
        if comm.rank == 4:
            return comm.platform.compute(1e9)
        peer = Peer(comm, 0, range(4))
        rows = []
        for number in range(30):
            comm.platform.compute(0.1 if (comm.rank, number) != (2, 3) else 1.0)
            group = find_group(peer, peer.next_round())
            settle(peer)
            rows.append((group.round, group.members))
        return rows

    by_rank = sim.run(program, 5, NETWORK, events=[Death(4, 1e3)])[:4]
    everyone = (0, 1, 2, 3)
    assert by_rank[0][2] == by_rank[2][2] == (2, everyone)
    assert (3, (0, 1, 3)) in by_rank[0]
    rounds = [t for t, _ in by_rank[2]]
    assert rounds[4] > rounds[3] + 5  # it has skipped rounds
    assert everyone in [members for t, members in by_rank[2] if t > 4]
    assert all(a[0] < b[0] for rows in by_rank for a, b in pairwise(rows))


def test_a_newcomer_enters_the_latest_round():
    def program(comm):
        if comm.rank == 4:
            return comm.platform.compute(1e9)
        if comm.rank == 3:
            comm.platform.compute(0.55)
        peer = Peer(comm, 0, [(comm.rank + 1) % 3])
        rows = []
        for _ in range(12 if comm.rank < 3 else 5):
            comm.platform.compute(0.1)
            group = find_group(peer, peer.next_round())
            settle(peer)
            rows.append((group.round, group.members))
        return rows

    by_rank = sim.run(program, 5, NETWORK, events=[Death(4, 1e3)])[:4]
    assert by_rank[3][-1][1] == (0, 1, 2, 3)
    assert by_rank[3][-1] in by_rank[0] and by_rank[3][-1] in by_rank[2]


def test_a_client_behind_a_nat_joins_and_never_leads():
    by_rank = matched(4, text="nat:0@0", bandwidth=[0.0, 1.0, 1.0, 1.0])
    assert groups(by_rank) == [(0, 1, 2, 3)] * 4
    assert {rows[0][0].leader for rows in by_rank} == {1}


def test_members_agree_in_spite_of_a_link_in_one_direction():
    for text in ("lose:0>1@0", "lose:1>0@0", "lose:2>0,1@0", "lose:0,1>3@0"):
        by_rank = matched(4, rounds=2, text=text)
        for t in (0, 1):
            for peer, members in enumerate(groups(by_rank, t)):
                assert peer in members
                assert all(groups(by_rank, t)[other] == members for other in members)


def test_messages_of_an_earlier_round_and_of_other_runs_have_no_effect():
    def program(comm):
        if comm.rank == 3:
            return comm.platform.compute(1e9)
        peer = Peer(comm, 0, range(3))
        other = 1 - comm.rank
        if comm.rank == 2:  # forges messages of the wrong round, and of another run
            for dest in (0, 1):
                forged = peer.head(m.JOIN, 1, 1)
                peer.mailbox.send(dest, m.pack(forged._replace(round=-1)))
                peer.mailbox.send(dest, m.pack(forged._replace(run=7, round=0)))
            return comm.platform.compute(5.0)
        del peer.view[2]
        group = find_group(peer, 0)
        settle(peer)
        assert other in group.members
        return group.members

    by_rank = sim.run(program, 4, NETWORK, events=[Death(3, 1e3)])
    assert by_rank[:2] == [(0, 1)] * 2


@pytest.mark.parametrize("first", (0, 20))
def test_matchmakings_with_lost_messages_and_vanished_peers_never_fail(first):
    figures = drops.measure(range(first, first + 20), rounds=4, values=8)
    assert figures["first_failures"] == []
    assert figures["alone"] < 0.3
    # a first contact that vanishes is silent after 2^11 latencies
    assert figures["slowest_seconds"] < 2**13 * drops.LATENCY


def searching(call):
    """Return the result of call(peer, search) on a peer in a matchmaking."""

    def program(comm):
        if comm.rank > 0:
            return comm.platform.compute(1e9)
        peer = Peer(comm, 0, [1, 2])
        peer.enter(0)
        return call(peer, Search(lambda other: True))

    return sim.run(program, 3, NETWORK, events=[Death(2, 1e3), Death(1, 1.0)])[0]


def sent(sender, kind, number=0, about=0, entries=()):
    head = m.VolunteerHead(kind, sender, 0, 0, number, about, 0, 1.0, 0)
    return m.unpack(m.with_body(head, np.array(list(entries), m.ENTRY)))


def test_a_binding_that_a_leader_has_released_is_never_valid_again():
    def call(peer, search):
        search.leader = 2
        handle(peer, search, sent(1, m.JOIN, number=4, about=3))  # released
        search.leader = None  # it is silent
        handle(peer, search, sent(1, m.JOIN, number=5, about=3))  # a late try
        assert not search.followers
        handle(peer, search, sent(1, m.JOIN, number=9, about=9))
        return search.followers

    assert searching(call) == {1: 9}


def test_only_the_group_of_the_joined_leader_is_accepted():
    members = [(0, 0, 0, 1.0), (1, 0, 0, 1.0)]

    def call(peer, search):
        for search.leader in (2, None):
            handle(peer, search, sent(1, m.BEGIN, about=1, entries=members))
            assert search.group is None
        search.joined.add(1)
        handle(peer, search, sent(1, m.BEGIN, about=1, entries=members))
        return search.group.members

    assert searching(call) == (0, 1)


def test_wrong_arguments_are_refused():
    def program(comm):
        with pytest.raises(BadInput, match="a quorum above 0"):
            Peer(comm, 0, [], settings=Settings(quorum=0))
        peer = Peer(comm, 64, [])
        group = find_group(peer, 0)
        with pytest.raises(BadInput, match="a round after 0"):
            find_group(peer, 0)
        with pytest.raises(BadInput, match="the size to Peer"):
            average(peer, group._replace(round=3), np.zeros(4))

    sim.run(program, 1, NETWORK)
