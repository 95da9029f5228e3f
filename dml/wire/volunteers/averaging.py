"""The mean of a group whose members may vanish: reduce-scatter and all-gather.

member  a ─ VALUES ─► ┌ owner a: mean of part a ┐ ─ RESULT ─► a b c
        b ─ VALUES ─► ┤ owner b: mean of part b ├ ─ RESULT ─► a b c
        c ─ VALUES ─► └ (c has bandwidth 0: a client owns no part)
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dml.types import BadInput
from dml.wire.averaging.exchange import floating
from dml.wire.plans.deadlines import close_time
from dml.wire.volunteers import messages as m
from dml.wire.volunteers.exchange import (
    Exchange,
    contribute,
    drop,
    handle,
    opened,
    result_to,
)
from dml.wire.volunteers.liveness import Watch, late
from dml.wire.volunteers.peer import Group, Peer


class Averaged(NamedTuple):
    """The parts of an averaged buffer.

    Attributes:
      edges: Element at which the part of each member starts, and the end.
      counts: Number of contributions to each part; 0 if the part stayed local.
    """

    edges: tuple[int, ...]
    counts: tuple[int, ...]


def average(peer: Peer, group: Group, buffer: np.ndarray) -> Averaged:
    """Average in place over a group, from which members may vanish at any time.

        0 ─ part 1 ─► 1: part 1 of 0, 1, 2   1 ─ mean, {0, 1, 2} ─► 0, 2
        2 ─ part 1 ─►    closes without 3    3 is left out of part 1
        3   vanished                         part 3 stays local

    The buffer has a part for each member, in proportion to its load (`load_balance`).
    The owner of a part decides which contributions are in it: those that arrive before
    median + spreads·MAD of their arrivals and before their sender is silent. It sends
    the mean with the mask of contributors. A member takes the mean if its contribution
    is in it, and keeps its own values otherwise. A part whose owner is silent stays
    local. A member sends its part to owners that it has heard in this round, so a link
    in one direction leaves it out of that part.

    Conserved, for each part: the sum over its contributors, if all of them receive the
    mean. A contributor that vanishes counts with its last values. A live contributor
    does not receive the mean if the owner vanishes or computes before, or if the link
    from the owner fails; owners that call `settle` do not compute before.
    Lost messages are sent again: messages never overtake each other, so a PONG that
    says so before the values arrive proves that they are lost.

    For g members, n words, equal bandwidths: 2 rounds, 2(g-1) messages and
    2(g-1)/g·n words per member, 2(g-1)α + 2(g-1)/g·nβ + (g-1)/g·nγ.

    Args:
      peer: A member.
      group: The group, from `find_group`; it is the latest of this peer.
      buffer: Floating-point values, of equal length and dtype on all members.

    Returns:
      The parts, and the number of contributions to each.
    """
    buffer = floating(peer.comm, buffer)
    if buffer.nbytes > peer.nbytes or group.round != peer.round:
        raise BadInput(
            f"rank {peer.id}: expected at most {peer.nbytes} bytes and "
            f"the group of round {peer.round}, got {buffer.nbytes} bytes and round "
            f"{group.round}; pass the size to Peer, and the latest group"
        )
    x = opened(peer, group, buffer)
    if len(group.members) > 1:
        for owner in list(x.unsent):
            contribute(peer, x, owner)
        for message in peer.kept():
            handle(peer, x, message)
        run(peer, x, lambda: not x.closed or bool(x.means))
        for member in group.members:
            if member != peer.id:
                peer.send(member, m.FINISHED, about=group.leader)
        peer.averages.append(peer.comm.Wtime() - x.opened)
    peer.exchange = x
    peer.leave()
    return Averaged(tuple(x.edges), tuple(x.counts))


def settle(peer: Peer) -> None:
    """Answer the members of the latest group until all have their results.

    Call it before a long computation if messages can be lost, so that no member takes
    this peer for silent. 1 round without losses.
    """
    x = peer.exchange
    if x is not None and x.group.round == peer.round:
        x.watches.clear()
        run(peer, x, lambda: bool(x.unfinished))
    while peer.begun:
        message = peer.receive(min(watch.next for watch in peer.begun.values()))
        if message is not None and x is not None:
            handle(peer, x, message)
    peer.leave()


def run(peer: Peer, x: Exchange, going_on: Callable[[], bool]) -> None:
    """Receive messages, ask members that are late, and close this peer's part."""
    settling = x.closed
    while True:
        now = peer.comm.Wtime()
        close = x.opened + part_deadline(peer, x)
        if not x.closed and (not x.parts or now >= close):
            send_result(peer, x)
        until = min(math.inf if x.closed else close, ask(peer, x, settling, now))
        if not going_on():
            return
        message = peer.receive(until)
        if message is not None:
            handle(peer, x, message)


def part_deadline(peer: Peer, x: Exchange) -> float:
    """Return the seconds after the opening at which this peer's part closes.

    It is open for the time in which earlier averages have ended, and two round trips
    longer than the deadline of the arrivals, for a contribution that was lost.
    """
    quorum = max(2, math.ceil(peer.settings.quorum * len(x.group.members)))
    close = close_time(x.part_times, quorum, peer.settings.spreads)
    return max(x.usual, close + 2 * peer.trips.timeout())


def ask(peer: Peer, x: Exchange, settling: bool, now: float) -> float:
    """Send a PING to late members; return the time of the next one."""
    next_time = math.inf
    for member in sorted(x.unfinished if settling else x.parts | x.means):
        if member not in x.watches:
            x.watches[member] = Watch(now + ask_after(peer))
        watch = x.watches[member]
        if now >= watch.next:
            if peer.trips.silent(watch):
                peer.miss(member)
                drop(x, member)
                return now
            missing = m.PART * (member in x.parts) | m.MEAN * (member in x.means)
            missing |= m.DONE * (settling and member in x.unfinished)
            peer.send(member, m.PING, peer.trips.start(now), missing)
            peer.trips.tried(watch, now)
        next_time = min(next_time, watch.next)
    return next_time


def ask_after(peer: Peer) -> float:
    """Return the seconds before the first question of an average."""
    return late(peer.averages, 0.0) if peer.averages else peer.trips.timeout()


def send_result(peer: Peer, x: Exchange) -> None:
    """Close this peer's part: send its mean, to others the mask only."""
    x.parts.clear()
    x.closed = True
    count = int(x.mask.sum())
    if len(x.values):
        place = x.group.members.index(peer.id)
        if count > 1:
            np.divide(x.values, count, out=x.values)
            x.part(peer.id)[:] = x.values
        x.counts[place] = count
        for member in x.group.members:
            if member != peer.id:
                result_to(peer, x, member)
