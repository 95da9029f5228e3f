"""The mean of a group whose members may vanish, by reduce-scatter and all-gather.

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
from dml.wire.plans.averaging.deadlines import close_time
from dml.wire.volunteers import messages as m
from dml.wire.volunteers.exchange import (
    Exchange,
    contribute,
    drop,
    handle,
    open_exchange,
    send_result_to,
)
from dml.wire.volunteers.liveness import Watch, late_after
from dml.wire.volunteers.peer import Group, Peer


class Averaged(NamedTuple):
    """The parts of an averaged buffer.

    Attributes:
      edges: First element of the part of each member, then the length of the buffer.
      counts: Number of contributions to each part; 0 if the part stayed local.
    """

    edges: tuple[int, ...]
    counts: tuple[int, ...]


def average(peer: Peer, group: Group, buffer: np.ndarray) -> Averaged:
    """Average a buffer in place over a group whose members may vanish at any time.

        0 ─ part 1 ─► 1: part 1 of 0, 1, 2   1 ─ mean, {0, 1, 2} ─► 0, 2
        2 ─ part 1 ─►    closes without 3    3 is left out of part 1
        3   vanished                         part 3 stays local

    The buffer is divided into one part per member; the lengths follow from the
    bandwidths (`load_balance`). The owner of a part averages the contributions that
    arrive before median + spreads·MAD of the arrivals, and does not wait for members
    that are taken for silent. It sends the mean with the mask of contributors. A member
    that is a contributor replaces the part by the mean; on other members the part does
    not change. A part whose owner is silent stays local. A member contributes to owners
    from which a message has arrived in this round, so a member without an incoming link
    from an owner does not contribute to that owner's part.

    The sum over the contributors of a part is conserved if all contributors receive the
    mean. The last values of a contributor that vanishes are in the mean. A live
    contributor does not receive the mean if the owner vanishes, if the link from the
    owner fails, or if the message is lost and the owner computes instead of sending it
    again; `settle` prevents the last case. Lost messages are sent again. Messages
    between two ranks never overtake each other, so values are lost if a PONG which
    states that they were sent arrives before them.

    For g members, n words, equal bandwidths: 2 rounds, 2(g-1) messages and
    2(g-1)/g·n words per member, 2(g-1)α + 2(g-1)/g·nβ + (g-1)/g·nγ.

    Args:
      peer: A member.
      group: Result of the latest `find_group` of this peer.
      buffer: Floating-point values, of equal length and dtype on all members.

    Returns:
      Boundaries of the parts, and the number of contributions to each part.
    """
    buffer = floating(peer.comm, buffer)
    if buffer.nbytes > peer.nbytes or group.round != peer.round:
        raise BadInput(
            f"rank {peer.id}: expected at most {peer.nbytes} bytes and "
            f"the group of round {peer.round}, got {buffer.nbytes} bytes and round "
            f"{group.round}; pass the size to Peer, and the latest group"
        )
    exchange = open_exchange(peer, group, buffer)
    if len(group.members) > 1:
        for owner in list(exchange.unsent):
            contribute(peer, exchange, owner)
        for message in peer.take_early():
            handle(peer, exchange, message)
        run(peer, exchange, lambda: not exchange.closed or bool(exchange.means))
        for member in group.members:
            if member != peer.id:
                peer.send(member, m.FINISHED, about=group.leader)
        peer.averages.append(peer.comm.Wtime() - exchange.opened)
    peer.exchange = exchange
    peer.leave()
    return Averaged(tuple(exchange.edges), tuple(exchange.counts))


def settle(peer: Peer) -> None:
    """Reply to the members of the latest group until all of them have their results.

    Call `settle` before a long computation if messages can be lost: otherwise a member
    that waits for a message sent again may take this peer for silent. 1 round if no
    message is lost.
    """
    exchange = peer.exchange
    if exchange is not None and exchange.group.round == peer.round:
        exchange.watches.clear()
        run(peer, exchange, lambda: bool(exchange.unfinished))
    while peer.begun:
        message = peer.receive(min(watch.next for watch in peer.begun.values()))
        if message is not None and exchange is not None:
            handle(peer, exchange, message)
    peer.leave()


def run(peer: Peer, exchange: Exchange, incomplete: Callable[[], bool]) -> None:
    """Receive messages, send PINGs to late members, and close this peer's part."""
    settling = exchange.closed
    while True:
        now = peer.comm.Wtime()
        close = exchange.opened + part_deadline(peer, exchange)
        if not exchange.closed and (not exchange.parts or now >= close):
            send_result(peer, exchange)
        until = min(
            math.inf if exchange.closed else close,
            ping_late_members(peer, exchange, settling, now),
        )
        if not incomplete():
            return
        message = peer.receive(until)
        if message is not None:
            handle(peer, exchange, message)


def part_deadline(peer: Peer, exchange: Exchange) -> float:
    """Return the seconds after the opening at which this peer's part closes.

    The result is the larger of the usual duration of earlier averages and the deadline
    of the arrivals plus two timeouts, in which a lost contribution can be sent again.
    """
    quorum = max(2, math.ceil(peer.settings.quorum * len(exchange.group.members)))
    close = close_time(exchange.part_times, quorum, peer.settings.spreads)
    return max(exchange.usual, close + 2 * peer.trips.timeout)


def ping_late_members(
    peer: Peer, exchange: Exchange, settling: bool, now: float
) -> float:
    """Send a PING to each late member; return the time of the next PING."""
    next_time = math.inf
    for member in sorted(
        exchange.unfinished if settling else exchange.parts | exchange.means
    ):
        if member not in exchange.watches:
            exchange.watches[member] = Watch(now + first_ping_delay(peer))
        watch = exchange.watches[member]
        if now >= watch.next:
            if member in peer.dropped or peer.trips.silent(watch):
                peer.mark_absent(member)
                drop(exchange, member)
                return now
            wanted = m.PART | m.MEAN | m.DONE * settling
            about = exchange.missing(member) & wanted
            peer.send(member, m.PING, peer.trips.start(member, now), about)
            peer.trips.tried(watch, now)
        next_time = min(next_time, watch.next)
    return next_time


def first_ping_delay(peer: Peer) -> float:
    """Return the seconds from the opening of an average to its first PING."""
    return late_after(peer.averages, 0.0) if peer.averages else peer.trips.timeout


def send_result(peer: Peer, exchange: Exchange) -> None:
    """Send the mean of this peer's part to its contributors, the mask to others."""
    exchange.parts.clear()
    exchange.closed = True
    count = int(exchange.mask.sum())
    if len(exchange.values):
        place = exchange.group.members.index(peer.id)
        if count > 1:
            np.divide(exchange.values, count, out=exchange.values)
            exchange.part(peer.id)[:] = exchange.values
        exchange.counts[place] = count
        for member in exchange.group.members:
            if member != peer.id:
                send_result_to(peer, exchange, member)
