"""Matchmaking without a master: peers with equal keys in a round form groups.

3 HELLO►all              Every peer sends HELLO to the peers that it expects. Of the
1 HELLO►all              peers that have arrived, the first by (priority, id) leads, and
3 JOIN─►1 ─WELCOME►3     the others join it. If an earlier peer in this order arrives,
0 HELLO►all              the leader releases its followers and joins that peer. A group
1 RELEASE►3, JOIN─►0     closes when it is full, when all expected peers are in it, or
3 JOIN─►0                at the deadline of the arrivals. The next peer in the order
0 BEGIN {0, 1, 3}►all    replaces a silent leader.
"""

import math
from collections.abc import Callable

from dml.wire.plans.averaging.deadlines import close_time
from dml.wire.volunteers import messages as m
from dml.wire.volunteers.liveness import Watch, late_after
from dml.wire.volunteers.messages import Message
from dml.wire.volunteers.peer import Group, Peer
from dml.wire.volunteers.search import Search, handle, release

Key = Callable[[int, int], int]


def one_key(t: int, peer: int) -> int:
    """Return the same key for all peers and rounds."""
    return 0


def find_group(peer: Peer, t: int, key: Key = one_key) -> Group:
    """Return the group of this peer in a round; every live peer is in one.

    Peers with equal keys form groups of at most `settings.width` members. A peer is
    bound to the leader that it has joined, until the leader releases it or is silent.
    The members of a group are the leader and the peers that are bound to it, so all
    members return equal groups, unless a live leader is taken for silent; this has the
    probability `settings.risk`. The group may contain peers that have vanished after
    their JOIN. It has one member if no message of another candidate arrives.

    A leader closes its group when it is full, when all expected peers are in it, or, if
    a quorum has arrived, at median + spreads·MAD of the arrivals, but not before the
    usual last arrival of earlier rounds. Without a quorum, a leader waits for the
    largest of three times: 1 + spreads times the larger of its work since its last
    round and the arrivals so far; the usual last arrival; and the time after which a
    peer is taken for silent. A peer without other candidates that knows of a later
    round enters the later round instead.

    With c candidates of a key: c - 1 HELLOs and REPLYs per peer, a JOIN and a WELCOME,
    and c - 1 BEGINs of the leader. From the last arrival to the group: 3 messages of 8
    to 8 + 4c words, one after another, 3α.

    Args:
      peer: The peer.
      t: Number of the round, after all earlier ones: `peer.next_round()`.
      key: Function (t, id) -> key of a peer, such as its line of a grid; equal on all
        peers.
    """
    work = peer.comm.Wtime() - peer.left
    group = None
    while group is None:
        group = search_round(peer, t, key, work)
        t = peer.next_round()
    peer.groups[group.round] = group
    peer.leave()
    return group


def search_round(peer: Peer, t: int, key: Key, work: float) -> Group | None:
    """Return the group of a round; None if this peer must enter a later round."""
    early = peer.enter(t)
    own_key = key(t, peer.id)
    search = Search(lambda other: key(t, other) == own_key)
    if peer.arrivals:
        search.usual = late_after(peer.arrivals, peer.settings.spreads)
    send_hello_to_other_key(peer, search)
    queued: Message | None
    for queued in early:
        handle(peer, search, queued)
    while (queued := peer.receive(peer.opened)) is not None:
        handle(peer, search, queued)  # a HELLO is answered
    until = step(peer, search, work)
    while search.group is None and until is not None:
        received = peer.receive(until)
        if received is not None:
            handle(peer, search, received)
        if search.group is None:
            until = step(peer, search, work)
    if search.arrivals:
        peer.arrivals.append(max(search.arrivals.values()))
    for other in peer.expected() - search.arrivals.keys():
        if search.has_key(other) and other not in search.excluded:
            peer.mark_absent(other)
    return search.group


def send_hello_to_other_key(peer: Peer, search: Search) -> None:
    """Send HELLO to a peer with another key, so that views spread between keys."""
    others = [other for other in sorted(peer.view) if not search.has_key(other)]
    if others:
        dest = others[(peer.round * 7919 + peer.id) % len(others)]
        peer.send_view(dest, m.HELLO)


def step(peer: Peer, search: Search, work: float) -> float | None:
    """Send the HELLO, JOIN or BEGIN messages that the state requires.

    Returns:
      Time of the next call; None if this peer enters a later round instead.
    """
    candidates = set(filter(search.has_key, peer.expected()))
    search.excluded |= {p for p, entry in peer.view.items() if entry.beat > peer.round}
    for other in peer.dropped:
        search.excluded.add(other)
        search.followers.pop(other, None)
    for other in sorted(candidates - search.hello_sent):
        search.hello_sent.add(other)
        peer.send_view(other, m.HELLO)
    first = first_leader(peer, search)
    if search.leader is None and first not in (None, peer.id):
        follow(peer, search, first)
    now = peer.comm.Wtime()
    if search.leader is not None:
        return check_leader(peer, search, now)
    alone = not search.arrivals.keys() - search.excluded
    if alone and peer.newest() > peer.round:
        return None
    missing = candidates - search.excluded - search.followers.keys()
    size = 1 + len(search.followers)
    # an arrived peer joins this peer or another group, unless it has vanished
    joining = [search.arrivals[other] for other in missing & search.arrivals.keys()]
    close = peer.opened + max(
        closing_time(peer, search, candidates, work),
        max(joining, default=-math.inf) + peer.trips.silence(),
    )
    complete = peer.view and not missing
    if size >= peer.settings.width or complete or now >= close:
        begin(peer, search, candidates)
    return close


def leader_order(peer: Peer, other: int) -> tuple[int, int]:
    """Return the sort key of a peer among possible leaders: priority, then id."""
    if other == peer.id:
        return peer.priority, peer.id
    return peer.view[other].priority, other


def first_leader(peer: Peer, search: Search) -> int | None:
    """Return the first possible leader; None if there is none."""
    arrived = search.arrivals.keys() - search.excluded - search.nonleaders
    leaders = [other for other in arrived if peer.view[other].bandwidth]
    if peer.bandwidth:
        leaders.append(peer.id)
    return min(leaders, key=lambda other: leader_order(peer, other), default=None)


def closing_time(
    peer: Peer, search: Search, candidates: set[int], work: float
) -> float:
    """Return the seconds after the opening at which a group closes."""
    settings = peer.settings
    times = [
        0.0,
        *(search.arrivals[p] for p in search.arrivals.keys() - search.excluded),
    ]
    # the quorum is relative to the largest possible group
    possible = (candidates | search.arrivals.keys()) - search.excluded
    largest = min(settings.width, 1 + len(possible))
    quorum = max(2, math.ceil(settings.quorum * largest))
    close = close_time(times, quorum, settings.spreads)
    if close < math.inf:
        return max(close, search.usual)
    longest = (1 + settings.spreads) * max(work, *times)
    return max(longest, search.usual, peer.trips.silence())


def follow(peer: Peer, search: Search, leader: int) -> None:
    """Release all followers and join a leader."""
    for follower, number in search.followers.items():
        release(peer, search, follower, number, leader)
    search.followers.clear()
    search.leader, search.watch = leader, Watch(0.0)
    search.joined.add(leader)
    search.binding = peer.trips.number + 1
    join(peer, search)


def join(peer: Peer, search: Search) -> None:
    """Send a JOIN to the leader."""
    assert search.leader is not None
    now = peer.comm.Wtime()
    number = peer.trips.start(search.leader, now)
    peer.send(search.leader, m.JOIN, number, search.binding)
    peer.trips.tried(search.watch, now)


def check_leader(peer: Peer, search: Search, now: float) -> float:
    """Repeat a late JOIN, or leave a silent leader; return the next call's time."""
    assert search.leader is not None
    if now >= search.watch.next:
        if search.leader in peer.dropped or peer.trips.silent(search.watch):
            search.excluded.add(search.leader)
            peer.mark_absent(search.leader)
            search.leader = None
            search.hello_sent.clear()  # this peer may lead again
            return now
        join(peer, search)
    return search.watch.next


def begin(peer: Peer, search: Search, candidates: set[int]) -> None:
    """Close the group, and send BEGIN with its members to all candidates."""
    members = sorted([peer.id, *search.followers])
    bandwidths = [
        peer.bandwidth if member == peer.id else peer.view[member].bandwidth
        for member in members
    ]
    group = Group(peer.round, peer.id, tuple(members), tuple(bandwidths))
    now = peer.comm.Wtime()
    for member in search.followers:
        peer.begun[member] = Watch(now)
        peer.send_group(member, group)
        peer.trips.tried(peer.begun[member], now)
    for other in sorted((candidates | search.arrivals.keys()) - set(members)):
        peer.send_group(other, group)
    search.group = group
