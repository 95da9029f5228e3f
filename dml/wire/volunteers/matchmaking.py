"""Matchmaking without a master: the peers with one key in a round form groups.

3 HELLO►all                 Every peer greets those that it expects. The best of
1 HELLO►all                 those heard (by priority, then id) leads, others follow.
3 JOIN─►1 ─WELCOME►3        A leader that hears a better one releases its followers
0 HELLO►all                 and follows it. A group closes when it is full, when all
1 RELEASE►3, JOIN─►0        expected peers are in it, or at the deadline of the
3 JOIN─►0                   arrivals. A silent leader is replaced by the next best.
0 BEGIN {0, 1, 3}►all
"""

import math
from collections.abc import Callable

from dml.wire.plans.deadlines import close_time
from dml.wire.volunteers import messages as m
from dml.wire.volunteers.liveness import Watch, late
from dml.wire.volunteers.messages import Message
from dml.wire.volunteers.peer import Group, Peer
from dml.wire.volunteers.search import Search, handle, release
from dml.wire.volunteers.views import expected

Key = Callable[[int, int], int]


def one_key(t: int, peer: int) -> int:
    """Return the same key for all peers and rounds."""
    return 0


def find_group(peer: Peer, t: int, key: Key = one_key) -> Group:
    """Return the group of this peer in a round; every live peer is in one.

    Peers with equal keys form groups of at most `settings.width` members. A peer is
    bound to the leader it has joined last, until the leader releases it or is silent.
    The leader lists the peers that are bound to it. So the members of a group agree on
    it, unless a live leader was taken for silent, which has the probability
    `settings.risk`. The group may contain peers that have vanished since they joined,
    and it consists of this peer only if no other was heard.

    A leader closes its group when it is full, when all expected peers are in it, or,
    once a quorum was heard, at median + spreads·MAD of the arrivals, but not before the
    usual last arrival of earlier rounds. Before a quorum it waits for 1 + spreads times
    the longer of its own work since its last round and the arrivals so far, or until a
    peer would be taken for silent, if that is later.

    With c candidates of a key: c - 1 HELLOs and REPLYs per peer, a JOIN and a WELCOME,
    and c - 1 BEGINs of the leader. 3 messages one after another from the last arrival
    to the group, of 8 to 8 + 4c words: 3α.

    A peer that would be alone, and knows of a later round, enters that one instead.

    Args:
      peer: The peer.
      t: Number of the round, after all earlier ones: `peer.next_round()`.
      key: key(t, id) is the key of a peer, such as its line of a grid; equal functions
        on all peers.
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
    """Return the group of a round; None if this peer is alone and others are later."""
    early = peer.enter(t)
    own = key(t, peer.id)
    search = Search(lambda other: key(t, other) == own)
    if peer.arrivals:
        search.usual = late(peer.arrivals, peer.settings.spreads)
    greet_other_key(peer, search)
    queued: Message | None
    for queued in early:
        handle(peer, search, queued)
    while (queued := peer.receive(peer.opened)) is not None:
        handle(peer, search, queued)  # those heard are answered, and not greeted
    until = step(peer, search, work)
    while search.group is None and until is not None:
        received = peer.receive(until)
        if received is not None:
            handle(peer, search, received)
        if search.group is None:
            until = step(peer, search, work)
    if search.arrivals:
        peer.arrivals.append(max(search.arrivals.values()))
    for other in expected(peer.view, peer.absent) - search.arrivals.keys():
        if search.has_key(other) and other not in search.apart:
            peer.miss(other)
    return search.group


def greet_other_key(peer: Peer, search: Search) -> None:
    """Greet one peer with another key, so that views spread between keys."""
    others = [other for other in sorted(peer.view) if not search.has_key(other)]
    if others:
        dest = others[(peer.round * 7919 + peer.id) % len(others)]
        peer.send_view(dest, m.HELLO)


def step(peer: Peer, search: Search, work: float) -> float | None:
    """Greet, follow or begin as far as the state allows.

    Returns:
      The time at which to look again; None if this peer leaves the round.
    """
    candidates = set(filter(search.has_key, expected(peer.view, peer.absent)))
    search.apart |= {p for p, entry in peer.view.items() if entry.beat > peer.round}
    for other in sorted(candidates - search.greeted):
        search.greeted.add(other)
        peer.send_view(other, m.HELLO)
    best = best_of(peer, search)
    if search.leader is None and best not in (None, peer.id):
        follow(peer, search, best)
    now = peer.comm.Wtime()
    if search.leader is not None:
        return check_leader(peer, search, now)
    alone = not search.arrivals.keys() - search.apart
    if alone and peer.newest() > peer.round:
        return None
    missing = candidates - search.apart - search.followers.keys()
    size = 1 + len(search.followers)
    # those heard join this peer or are in another group, unless they have vanished
    joining = [search.arrivals[other] for other in missing & search.arrivals.keys()]
    close = peer.opened + max(
        closing(peer, search, candidates, work),
        max(joining, default=-math.inf) + peer.trips.silence(),
    )
    complete = peer.view and not missing
    if size >= peer.settings.width or complete or now >= close:
        begin(peer, search, candidates)
    return close


def rank(peer: Peer, other: int) -> tuple[int, int]:
    """Return the order of a peer among those that may lead: ties are broken by id."""
    if other == peer.id:
        return peer.priority, peer.id
    return peer.view[other].priority, other


def best_of(peer: Peer, search: Search) -> int | None:
    """Return the best peer that may lead; None for a client without a leader."""
    heard = search.arrivals.keys() - search.apart - search.moved
    able = [other for other in heard if peer.view[other].bandwidth]
    if peer.bandwidth:
        able.append(peer.id)
    return min(able, key=lambda other: rank(peer, other), default=None)


def closing(peer: Peer, search: Search, candidates: set[int], work: float) -> float:
    """Return the seconds after the opening at which a group closes."""
    settings = peer.settings
    times = [0.0, *(search.arrivals[p] for p in search.arrivals.keys() - search.apart)]
    # no group is larger than the width, so no more are waited for
    possible = (candidates | search.arrivals.keys()) - search.apart
    most = min(settings.width, 1 + len(possible))
    quorum = max(2, math.ceil(settings.quorum * most))
    close = close_time(times, quorum, settings.spreads)
    if close < math.inf:
        return max(close, search.usual)
    patience = (1 + settings.spreads) * max(work, *times)
    return max(patience, search.usual, peer.trips.silence())


def follow(peer: Peer, search: Search, leader: int) -> None:
    """Release all followers and join a leader."""
    for follower, number in search.followers.items():
        release(peer, search, follower, number, leader)
    search.followers.clear()
    search.leader, search.watch = leader, Watch(0.0)
    search.binding = peer.trips.number + 1
    join(peer, search)


def join(peer: Peer, search: Search) -> None:
    """Send a JOIN to the leader."""
    assert search.leader is not None
    now = peer.comm.Wtime()
    number = peer.trips.start(now)
    peer.send(search.leader, m.JOIN, number, search.binding)
    peer.trips.tried(search.watch, now)


def check_leader(peer: Peer, search: Search, now: float) -> float:
    """Repeat the JOIN, or leave a silent leader; return when to look again."""
    assert search.leader is not None
    if now >= search.watch.next:
        if peer.trips.silent(search.watch):
            search.apart.add(search.leader)
            peer.miss(search.leader)
            search.leader = None
            search.greeted.clear()  # this peer may lead again
            return now
        join(peer, search)
    return search.watch.next


def begin(peer: Peer, search: Search, candidates: set[int]) -> None:
    """Close the group, and send its members to all candidates."""
    members = sorted([peer.id, *search.followers])
    entries = [
        peer.bandwidth if member == peer.id else peer.view[member].bandwidth
        for member in members
    ]
    group = Group(peer.round, peer.id, tuple(members), tuple(entries))
    now = peer.comm.Wtime()
    for member in search.followers:
        peer.begun[member] = Watch(now)
        peer.send_group(member, group)
        peer.trips.tried(peer.begun[member], now)
    for other in sorted((candidates | search.arrivals.keys()) - set(members)):
        peer.send_group(other, group)
    search.group = group
