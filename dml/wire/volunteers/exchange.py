"""The state of the average of a group, and the handlers of its messages."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dml.wire.plans.averaging.load_balance import shares
from dml.wire.volunteers import messages as m
from dml.wire.volunteers.liveness import Watch, late_after
from dml.wire.volunteers.messages import Message
from dml.wire.volunteers.peer import Group, Peer

ALIGNMENT = 8  # bytes; values start at a multiple of it


@dataclass
class Exchange:
    """The state of the average of a group, on one member.

    Attributes:
      group: The group.
      buffer: Values of this peer; each part is replaced by its mean.
      edges: As in `Averaged`.
      result: RESULT message of this peer's part: mask, and sum of the contributions,
        which becomes their mean.
      unsent: Owners to which no contribution was sent, as no message has arrived from
        them in this round.
      parts: Members whose contribution is awaited.
      means: Owners whose result is awaited.
      unfinished: Members that have not sent FINISHED.
      counts: As in `Averaged`.
      opened: Time of the opening in s.
      usual: Usual largest duration of an average in s.
      part_times: Seconds from the opening to the arrival of each contribution.
      watches: Unanswered PINGs of each member, and time of its next PING.
      closed: Whether the result of this peer's part is sent.
    """

    group: Group
    buffer: np.ndarray
    edges: list[int]
    result: np.ndarray
    unsent: set[int]
    parts: set[int]
    means: set[int]
    unfinished: set[int]
    counts: list[int]
    opened: float
    usual: float
    part_times: list[float] = field(default_factory=lambda: [0.0])
    watches: dict[int, Watch] = field(default_factory=dict)
    closed: bool = False

    def part(self, member: int) -> np.ndarray:
        """Return the part of a member, as a view of the buffer."""
        place = self.group.members.index(member)
        return self.buffer[self.edges[place] : self.edges[place + 1]]

    @property
    def mask(self) -> np.ndarray:
        """Return the mask of contributors, by member."""
        return self.result[m.NBYTES :][: len(self.group.members)]

    @property
    def values(self) -> np.ndarray:
        """Return the sum or the mean of this peer's part."""
        start = m.NBYTES + mask_nbytes(self.group)
        return self.result[start:].view(self.buffer.dtype)

    def missing(self, member: int) -> int:
        """Return the messages that are awaited from a member: PART | MEAN | DONE."""
        part, mean = member in self.parts, member in self.means
        return m.PART * part | m.MEAN * mean | m.DONE * (member in self.unfinished)


def mask_nbytes(group: Group) -> int:
    return -(-len(group.members) // ALIGNMENT) * ALIGNMENT


def open_exchange(peer: Peer, group: Group, buffer: np.ndarray) -> Exchange:
    """Return the state at the opening of an average."""
    sizes = [0] * len(group.members)
    if any(group.bandwidths):
        sizes = shares(group.bandwidths, len(buffer)).tolist()
    edges = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    place = group.members.index(peer.id)
    others = set(group.members) - {peer.id}
    owners = {
        member for member, size in zip(group.members, sizes, strict=True) if size
    } & others
    part = buffer[edges[place] : edges[place + 1]]
    head = peer.head(m.RESULT, about=group.leader)
    exchange = Exchange(
        group,
        buffer,
        edges,
        m.pack(head, mask_nbytes(group) + part.nbytes),
        unsent=set(owners),
        parts=set(others) if len(part) else set(),
        means=owners,
        unfinished=set(others),
        counts=[int(len(part) > 0 and member == peer.id) for member in group.members],
        opened=peer.comm.Wtime(),
        usual=usual_end(peer),
    )
    exchange.mask[:] = 0
    exchange.mask[place] = 1
    exchange.values[:] = part
    return exchange


def usual_end(peer: Peer) -> float:
    """Return the usual largest duration of an average in seconds."""
    if peer.averages:
        return late_after(peer.averages, peer.settings.spreads)
    return peer.trips.silence()


def contribute(peer: Peer, exchange: Exchange, owner: int) -> None:
    """Send an owner its part if a message of the owner has arrived in this round."""
    if owner in peer.senders:
        exchange.unsent.discard(owner)
        part = exchange.part(owner)
        message = m.pack(peer.head(m.VALUES, about=exchange.group.leader), part.nbytes)
        message[m.NBYTES :].view(part.dtype)[:] = part
        peer.mailbox.send(owner, message)


def send_result_to(peer: Peer, exchange: Exchange, member: int) -> None:
    """Send a member the result of this peer's part."""
    included = exchange.mask[exchange.group.members.index(member)]
    end = len(exchange.result) if included else m.NBYTES + mask_nbytes(exchange.group)
    peer.mailbox.send(member, exchange.result[:end])


def drop(exchange: Exchange, member: int) -> None:
    """Remove a silent or departed member from all sets of awaited members."""
    for waiting in (
        exchange.parts,
        exchange.means,
        exchange.unfinished,
        exchange.unsent,
    ):
        waiting.discard(member)


def refuse(peer: Peer, exchange: Exchange, member: int) -> None:
    """Count a malformed message of a member, and await no others of it."""
    peer.dropped[member] += 1
    drop(exchange, member)


def handle(peer: Peer, exchange: Exchange, message: Message) -> None:
    """Update the state by a message of the current round."""
    head = message.head
    if head.kind == m.PONG and head.sender in exchange.watches:
        watch = exchange.watches[head.sender]
        peer.trips.answered(watch, peer.comm.Wtime())
    if head.sender not in exchange.group.members:
        if head.kind in (m.HELLO, m.JOIN):
            peer.send_group(head.sender, exchange.group)
        return
    if head.kind in HANDLERS:
        HANDLERS[head.kind](peer, exchange, message)
    if head.sender in exchange.unsent:
        contribute(peer, exchange, head.sender)


def on_member_search(peer: Peer, exchange: Exchange, message: Message) -> None:
    peer.send_group(message.head.sender, exchange.group)


def on_begin(peer: Peer, exchange: Exchange, message: Message) -> None:
    if message.head.about == exchange.group.leader:
        peer.send(exchange.group.leader, m.ACK)


def on_values(peer: Peer, exchange: Exchange, message: Message) -> None:
    head = message.head
    if head.about == exchange.group.leader and head.sender in exchange.parts:
        if len(message.body) != exchange.values.nbytes:
            return refuse(peer, exchange, head.sender)
        exchange.parts.discard(head.sender)
        values = message.body.view(exchange.buffer.dtype)
        peer.comm.Reduce_local(values, exchange.values, np.add)
        exchange.mask[exchange.group.members.index(head.sender)] = 1
        exchange.part_times.append(peer.comm.Wtime() - exchange.opened)


def on_result(peer: Peer, exchange: Exchange, message: Message) -> None:
    head, group = message.head, exchange.group
    if head.about == group.leader and head.sender in exchange.means:
        part, start = exchange.part(head.sender), mask_nbytes(group)
        mask, values = message.body[: len(group.members)], message.body[start:]
        fits = len(message.body) >= start and mask.max() == 1
        included = bool(fits and mask[group.members.index(peer.id)])
        if not fits or len(values) != included * part.nbytes:
            return refuse(peer, exchange, head.sender)
        exchange.means.discard(head.sender)
        if included:
            part[:] = values.view(part.dtype)
            exchange.counts[group.members.index(head.sender)] = int(mask.sum())


def on_ping(peer: Peer, exchange: Exchange, message: Message) -> None:
    head = message.head
    sent = m.PART * (head.sender not in exchange.unsent) | m.MEAN * exchange.closed
    sent |= m.DONE * (exchange.closed and not exchange.means)
    peer.send(head.sender, m.PONG, head.number, head.about & sent)


def on_pong(peer: Peer, exchange: Exchange, message: Message) -> None:
    head = message.head
    lost = head.about & exchange.missing(head.sender)
    if lost:
        peer.send(head.sender, m.RESEND, about=lost)


def on_resend(peer: Peer, exchange: Exchange, message: Message) -> None:
    sender, lost = message.head.sender, message.head.about
    if lost & m.PART and sender in exchange.means:
        contribute(peer, exchange, sender)
    if lost & m.MEAN and exchange.closed:
        send_result_to(peer, exchange, sender)
    if lost & m.DONE and exchange.closed and not exchange.means:
        peer.send(sender, m.FINISHED, about=exchange.group.leader)


def on_finished(peer: Peer, exchange: Exchange, message: Message) -> None:
    exchange.unfinished.discard(message.head.sender)


def on_gone(peer: Peer, exchange: Exchange, message: Message) -> None:
    drop(exchange, message.head.sender)


HANDLERS: dict[int, Callable[[Peer, Exchange, Message], None]] = {
    m.HELLO: on_member_search,
    m.JOIN: on_member_search,
    m.BEGIN: on_begin,
    m.VALUES: on_values,
    m.RESULT: on_result,
    m.PING: on_ping,
    m.PONG: on_pong,
    m.RESEND: on_resend,
    m.FINISHED: on_finished,
    m.GONE: on_gone,
}
